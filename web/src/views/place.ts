/** Where a subject of an incident can be looked at. */
import { href } from "../route";

/** Address of a subject's page; nothing where there is none. */
export function placeOf(subject: string): string | undefined {
  if (subject.startsWith("job ")) return href(["jobs", subject.slice(4)]);
  const pair = /^(\S+\/\S+?)(?:<->|->)(\S+\/\S+)$/.exec(subject);
  if (pair?.[1] && pair[2]) return href(["delay", pair[1], pair[2]]);
  if (subject === "fleet" || subject.includes(" ")) return undefined;
  return href(["fabric", subject]);
}
