/** Answers of the API as `src/syntony/wire` defines them; only the fields that views use. */

export interface Part { name: string; state: string; reason: string; age_ns: number }
export interface Nic { name: string; rail: number; addresses: string[]; clock: string; stamping: string; rdma: string }
export interface Agent {
  host: string; connected: boolean; nics: Nic[]; version: string; last_batch_ns: number; rows: number;
  dropped: number; probes_per_s: number; faults: string[]; parts: Part[];
}
export interface Fleet { agents: Agent[]; rows_stored: number; probes_per_s: number }

export interface Incident {
  number: number; rule: string; subject: string; severity: string; state: string; summary: string; remedy: string;
  opened_ns: number; updated_ns: number; resolved_ns: number | null; value: number | null; worst: number | null; unit: string;
  evidence: string[]; jobs: string[]; members: string[]; pending: boolean; cause: number | null; pages: number;
  silenced: boolean; reopened: number; repeats: number; acknowledged_by: string; comment: string;
}
export interface Silence { number: number; rule: string; subject: string; first_ns: number; last_ns: number; who: string; comment: string }
export interface Incidents { incidents: Incident[]; silences: Silence[]; waiting: number }
export interface Rule {
  name: string; metric: string; severity: string; above: number | null; below: number | null; unit: string;
  explained_by: string[]; remedy: string; enabled: boolean;
}

export interface Timeline {
  node: string; ref_ns: number; offset_ns: number; drift_ppb: number; sigma_ns: number; drift_sigma_ppb: number;
  state: string; component: string; asymmetry_ns: number; reason: string;
}
export interface Clocks { timelines: Timeline[]; utc: Record<string, unknown> | null }
export interface ClockSample {
  ts_ns: number; node: string; offset_ns: number; drift_ppb: number; sigma_ns: number; bound_ns: number | null; state: string; reason: string;
}
export interface ClockTruth { host: string; error_ns: number | null; bound_ns: number | null; state: string | null }
export interface ClockTruths { clocks: ClockTruth[] }
export interface ClockHistory { samples: ClockSample[]; step_ns: number }

export interface Cell {
  src: string; dst: string; paths: number; sent: number; lost: number; owd_min_ns: number | null; owd_p50_ns: number | null;
  owd_p99_ns: number | null; clk_err_ns: number | null; dropped: number;
}
export interface Matrix { cells: Cell[] }
export interface Point { ts_ns: number; src: string; dst: string; sent: number; lost: number; owd_min_ns: number | null; owd_p50_ns: number | null; owd_p99_ns: number | null }

export interface FabricMap { configured: boolean; devices: { name: string; kind: string }[]; cables: [string, string][] }
export interface Finding {
  component: string; kind: string; fault: string; loss: number; delay_ns: number; confidence: number; window: string;
  paths: number; alternatives: string[];
}
export interface Findings { ts_ns: number; findings: Finding[] }
export interface Queue { component: string; delay_ns: number; since_ns: number; confidence: number; alternatives: string[]; pairs: string[]; flows: { job: string; pair: string; rate_bps: number }[] }
export interface Queues { queues: Queue[]; looked: boolean }
export interface FabricChange { ts_ns: number; change: string; what: string; name: string; detail: string }

export interface Port {
  nic: string; netdev: string; rdma: string; link_layer: string; driver: string; role: string; state: string; gbps: number | null;
  flaps: number; last_flap_ns: number | null; seen_ns: number; watched_ns: number; temperature_c: number | null; rx_dbm: number | null; bias_ma: number | null;
  tx_bps?: number | null; rx_bps?: number | null;
}
export interface Links { ports: Port[]; now_ns: number }
export interface LinkEvent { ts_ns: number; nic: string; kind: string; losses: number; before: string; after: string; detail: string; remedy: string }
export interface LinkCounter { nic: string; counter: string; increase: number; last_ns: number; reading: string }
export interface LinkHistory { events: LinkEvent[]; counters: LinkCounter[]; now_ns: number }

export interface JobView { job: string; began_ns: number; seen_ns: number; hosts: string[]; processes: number; running: number; ranks: number; programs: string[]; generation: number | null; spares: number | null; replaced: number }
export interface Jobs { now_ns: number; jobs: JobView[] }
export interface Verdict {
  class: string; subjects: string[]; onset_ns: number; end_ns: number | null; confidence: number; action: string;
  evidence: { signal: string; text: string; value: number | null; baseline: number | null }[];
  alternatives: { class: string; excluded: boolean; reason: string }[];
  blast_radius: { jobs: string[]; ranks: number; hosts: string[]; gpu_hours: number | null; slowdown: number | null };
  follows: string[];
}
export interface FlowLine {
  flow: string; src: string; dst: string; rate_bps: number | null; in_band_ns: number | null; worst_in_band_ns: number | null;
  out_of_band_ns: number | null; one_way_ns: number | null; worst_one_way_ns: number | null; one_way_bound_ns: number | null;
  one_way_why: string; probed_one_way_ns: number | null; retransmits: number | null; hops: string[];
}
export interface JobReport {
  job: string; begin_ns: number; end_ns: number; sentences: string[]; verdicts: Verdict[]; flows: FlowLine[]; flows_left_out: number;
  notes: string[]; at_ns: number[]; rate_bps: (number | null)[];
  delays: { flow: string; in_band_ns: (number | null)[]; out_of_band_ns: (number | null)[] }[];
  steps_at_ns: number[]; steps_ns: number[]; resent: (number | null)[]; takeovers: Takeover[];
}
export interface Takeover { ts_ns: number; what: string; rank: number; at: string; step: number; generation: number; reason: string; worker: string; stall_ns: number }

export interface ControllerStatus { name: string; epoch: number; seen_epoch: number }
export interface HostPaths {
  host: string; age_ns: number;
  report: { mode: string; stopped: boolean; degraded: number; left_out: number;
    connections: { job: string; connection: string; degraded: string; subflows: { path: string; state: string; rate_bps: number }[] }[] };
}
export interface FailoverStatus { switch: { stopped: boolean; at_ns: number; by: string } | null; hosts: HostPaths[] }
export interface PathEvent {
  ts_ns: number; host: string; job: string; connection: string; cause: string; evidence: string; action: string;
  old_path: string; new_path: string; detect_ns: number; act_ns: number; result: string;
}
export interface Move { move_id: string; ts_ns: number; flow: string; job: string; src: string; dst: string; old: string; new: string; cause: string; evidence: string; result: string; took_ns: number }
export interface LinkLoad { link: string; bps: number; capacity_bps: number; flows: number; queue_ns: number | null; paced_bps: number }
export interface PlacedFlow { flow: string; job: string; src: string; dst: string; path: string; tx_bps: number; rx_bps: number; paths: number; movable: boolean; priority: string; owd_p50_ns: number | null; owd_p99_ns: number | null; tx_pace_bps: number; rx_pace_bps: number }
export interface Traffic { mode: string; deciding: boolean; why: string; now_ns: number; flows: PlacedFlow[]; links: LinkLoad[]; pacing: string }
export interface Change { number: number; at_ns: number; who: string; origin: string; what: string; before: string; after: string; comment: string }

export interface AuditVerdict {
  branch: string; section: string; check: string; status: string; subject: string; expected: string; got: string;
  evidence: string; meaning: string; remedy: string; suspect: string;
}
export interface AuditPort { host: string; nic: string; initialized: string; active: string; gid: string; connectivity: string; gid_index: string }
export interface AuditSection { branch: string; section: string; counts: Record<string, number>; why: string }
export interface AuditRun { order: string; by: string; until_ns: number; hosts: number; waiting: number }
export interface AuditView {
  runs: AuditRun[]; order: string; against: string; taken_ns: number; waiting: string[]; sections: AuditSection[];
  verdicts: AuditVerdict[]; left_out: number; ports: AuditPort[];
  changes: { change: string; check: string; subject: string; before: string; after: string }[];
}
