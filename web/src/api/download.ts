// An answer as a file. The token is in a header, so that a plain link would not do.
import { ask } from "./client";

const KEPT = 60_000; // milliseconds until the browser surely has taken it

export async function download(path: string, name: string): Promise<void> {
  const answer = await ask(path);
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT);
}
