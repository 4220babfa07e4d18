import { address } from "../../../api/client";
import { download as save } from "../../../api/download";
import { sayError } from "../../../state/toasts";
import type { Stream } from "../shapes";
import type { Which } from "./lines";

/** The log as a file. */
export async function download({ job, attempt }: Omit<Which, "stream">, stream: Stream): Promise<void> {
  try {
    await save(address(`v1/jobs/${job}/log/raw`, { attempt, stream }), `job-${job}-${attempt}.${stream}.txt`);
  } catch (error) {
    sayError(error);
  }
}
