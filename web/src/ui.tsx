/** Components that every view is made of. */
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useErrorBoundary, useRef, useState } from "preact/hooks";
import { Problem } from "./api";
import { byName, duration } from "./format";
import type { Answer } from "./query";
import { toneOf, type Tone } from "./status";

export function Badge({ word, tone, children }: { word: string; tone?: Tone; children?: ComponentChildren }) {
  const found = tone ?? toneOf(word);
  return <span class={`badge ${found || "plain"}`}>{children ?? word.toLowerCase()}</span>;
}

/** Draws its children; what they throw is shown in their place, and the rest of the page goes on.
 *  Tries again with every new answer: whenever the parent is drawn anew. */
export function Safe({ children }: { children?: ComponentChildren }) {
  const logged = useRef("");
  const [found, again] = useErrorBoundary((error) => {
    if (String(error) !== logged.current) console.error(error);
    logged.current = String(error);
  });
  useEffect(() => found && again(), [children]);
  if (!found) return <>{children}</>;
  return (
    <div class="problem" role="alert">
      This cannot be shown, by a fault of the console: {found instanceof Error ? found.message : String(found)}
      <button type="button" onClick={again}>Try again</button>
    </div>
  );
}

export function Panel(props: {
  title: ComponentChildren; tools?: ComponentChildren; width?: string; flush?: boolean; children?: ComponentChildren;
}) {
  return (
    <section class={`panel ${props.width ?? "w12"}`}>
      <header><h2>{props.title}</h2>{props.tools && <div class="tools">{props.tools}</div>}</header>
      <div class={props.flush ? "flush" : "body"}><Safe>{props.children}</Safe></div>
    </section>
  );
}

export function Stat(props: {
  label: string; value: ComponentChildren; note?: ComponentChildren; tone?: Tone; to?: string; width?: string;
}) {
  const inner = (
    <>
      <span class="label">{props.label}</span>
      <span class={`value ${props.tone ?? ""}`}>{props.value}</span>
      <span class="note">{props.note}</span>
    </>
  );
  const width = props.width ?? "w3";
  return props.to
    ? <a class={`panel stat ${width}`} href={props.to}>{inner}</a>
    : <div class={`panel stat ${width}`}>{inner}</div>;
}

export function Head({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return <div class="head"><h1>{title}</h1>{children && <div class="tools">{children}</div>}</div>;
}

/** Nothing to show, and what to do next. */
export function Empty({ what, next }: { what: string; next?: ComponentChildren }) {
  return <div class="empty"><strong>{what}</strong>{next && <span>{next}</span>}</div>;
}

export function ProblemBox({ problem }: { problem: Problem }) {
  return <div class="problem" role="alert">{problem.detail || problem.title}</div>;
}

/** What an answer shows: loading, the problem, stale data with its age, or the data. */
export function Loaded<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ComponentChildren }) {
  if (answer.data === undefined)
    return answer.problem ? <ProblemBox problem={answer.problem} /> : <div class="loading" role="status">Loading…</div>;
  return (
    <>
      {answer.problem && (answer.problem.offline
        ? <Stale at={answer.at} />
        : <ProblemBox problem={answer.problem} />)}
      {children(answer.data)}
    </>
  );
}

export function Stale({ at }: { at: number }) {
  return <p class="stale" role="status">Stale: as it was {duration((Date.now() - at) * 1e6)} ago.</p>;
}

export interface Column<R> {
  title: string;
  cell: (row: R) => ComponentChildren;
  num?: boolean;
  sort?: (row: R) => number | string | null | undefined;
}

const PAGE = 200;

/** A table; headings of columns with `sort` are buttons. */
export function Table<R>(props: {
  rows: readonly R[]; columns: Column<R>[]; label: string; empty?: VNode; rowClass?: (row: R) => string; key_?: (row: R, n: number) => string | number;
}) {
  const [order, setOrder] = useState<{ at: number; down: boolean } | null>(null);
  const [shown, setShown] = useState(PAGE);
  if (!props.rows.length) return props.empty ?? <Empty what="Nothing here." />;
  const rows = order ? sorted(props.rows, props.columns[order.at]?.sort, order.down) : props.rows;
  const turn = (at: number) => setOrder({ at, down: order?.at === at ? !order.down : !!props.columns[at]?.num });
  return (
    <>
      <table aria-label={props.label}>
        <thead>
          <tr>
            {props.columns.map((column, at) => (
              <th scope="col" key={at} class={column.num ? "num" : ""}
                aria-sort={order?.at === at ? (order.down ? "descending" : "ascending") : undefined}>
                {column.sort
                  ? <button type="button" onClick={() => turn(at)}>{column.title}{order?.at === at ? (order.down ? " ↓" : " ↑") : ""}</button>
                  : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((row, n) => (
            <tr key={props.key_ ? props.key_(row, n) : n} class={props.rowClass?.(row)}>
              {props.columns.map((column, at) => <td key={at} class={column.num ? "num" : ""}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <div class="empty"><button type="button" onClick={() => setShown(shown + PAGE)}>
          Show {Math.min(PAGE, rows.length - shown)} more of {(rows.length - shown).toLocaleString("en-US")}
        </button></div>
      )}
    </>
  );
}

function sorted<R>(rows: readonly R[], by: Column<R>["sort"], down: boolean): readonly R[] {
  if (!by) return rows;
  const compare = (a: R, b: R): number => {
    const [x, y] = [by(a), by(b)];
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    const less = typeof x === "number" && typeof y === "number" ? x - y : byName(String(x), String(y));
    return down ? -less : less;
  };
  return [...rows].sort(compare);
}

export function Choice<T extends string>(props: { label: string; value: T; options: readonly (readonly [T, string])[]; pick: (value: T) => void }) {
  return (
    <span class="tabs" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.pick(value)}>{text}</button>
      ))}
    </span>
  );
}

const SHORT = 24;
/** Names up to so many letters are not broken. */
export function Name({ children, to, wrap }: { children: string; to?: string | undefined; wrap?: boolean }) {
  const style = `name${children.length <= SHORT && !wrap ? " short" : ""}`;
  return to ? <a class={`${style} mono`} href={to}>{children}</a> : <span class={style}>{children}</span>;
}

/** A question before something is changed. `ask` is given what was filled in; what it throws is shown. */
export function Dialog(props: {
  title: string; action: string; danger?: boolean; close: () => void; ask: (fields: FormData) => Promise<unknown>; children: ComponentChildren;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    box.current?.showModal();
  }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      await props.ask(new FormData(event.currentTarget as HTMLFormElement));
      props.close();
    } catch (found) {
      setProblem(found instanceof Error ? found.message : String(found));
      setBusy(false);
    }
  };
  return (
    <dialog ref={box} onClose={props.close} aria-label={props.title}>
      <form onSubmit={submit}>
        <h1>{props.title}</h1>
        {props.children}
        {problem && <div class="problem" role="alert">{problem}</div>}
        <div class="row">
          <button type="button" onClick={props.close}>Cancel</button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy}>{props.action}</button>
        </div>
      </form>
    </dialog>
  );
}

/** A sentence whose `commands` stand between backticks. */
export function Prose({ children }: { children: string }) {
  return <>{children.split("`").map((part, n) => (n % 2 ? <code key={n}>{part}</code> : part))}</>;
}

/** Parts of a whole, drawn to scale; the text beside it says the same. */
export function Bar({ parts }: { parts: [number, Tone | "muted" | "accent"][] }) {
  const total = parts.reduce((sum, [value]) => sum + value, 0) || 1;
  let at = 0;
  return (
    <span class="bar" aria-hidden="true">
      <svg viewBox="0 0 100 8" preserveAspectRatio="none">
        {parts.map(([value, tone], n) => {
          const x = at;
          at += (value / total) * 100;
          return <rect key={n} x={x} y="0" width={at - x} height="8" class={`fill-${tone || "muted"}`} />;
        })}
      </svg>
    </span>
  );
}

/** Save data as a file; made here, so that no other address is asked. */
export function save(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
