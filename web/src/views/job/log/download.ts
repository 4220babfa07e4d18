// The log as a file. The token is in a header, so that a plain link would not do.
import { address, ask } from "../../../api/client";
import { sayError } from "../../../state/toasts";
import type { Stream } from "../shapes";
import type { Which } from "./lines";

const KEPT = 60_000; // milliseconds until the browser surely has taken it

export async function download({ job, attempt }: Omit<Which, "stream">, stream: Stream): Promise<void> {
  try {
    const answer = await ask(address(`v1/jobs/${job}/log/raw`, { attempt, stream }));
    const url = URL.createObjectURL(await answer.blob());
    const link = document.createElement("a");
    link.href = url;
    link.download = `job-${job}-${attempt}.${stream}.txt`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), KEPT);
  } catch (error) {
    sayError(error);
  }
}
