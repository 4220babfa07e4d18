// The API's objects by the names we use for them. They come from openapi.json: `npm run types`.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Job = Schemas["JobObject"];
export type WholeJob = Schemas["WholeJob"];
export type Attempt = Schemas["AttemptObject"];
export type Gpu = Schemas["GpuObject"];
export type Gpus = Schemas["Gpus"];
export type Nodes = Schemas["Nodes"];
export type Backend = Schemas["BackendObject"];
export type Node = Schemas["NodeObject"];
export type Status = Schemas["Status"];
export type JobPage = Schemas["JobPage"];
export type Counts = Schemas["JobPage"]["counts"];
export type Reason = Schemas["ReasonObject"];
export type Reasons = Schemas["Reasons"];
export type SharedReason = Schemas["SharedReasonObject"];
export type State = Job["state"];
export type MachinePast = Schemas["MachinePast"];
export type CardPast = Schemas["CardPast"];
export type Report = Schemas["MachineReport"];
