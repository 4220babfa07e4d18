// What the routes below a job answer with.
import type { components } from "../../api/schema";

type Schemas = components["schemas"];

export type Stream = "stdout" | "stderr";
export type LogPage = Schemas["LogLines"];
export type LogFound = Schemas["LogMatches"];
export type Used = Schemas["UsageObject"];
export type UsageReport = Schemas["UsageReport"];
export type Series = Schemas["SeriesObject"];
export type EnvironmentBody = Schemas["EnvironmentBody"];

// The API leaves open what `dibs add` says about the code; this is what it says (inputs/code.py).
export interface Code {
  root?: string;
  commit?: string;
  branch?: string;
  is_dirty?: boolean;
  untracked?: string[];
  diff?: string | null;
  snapshot?: string;
}
