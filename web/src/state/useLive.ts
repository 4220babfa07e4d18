import { useEffect, useMemo } from "preact/hooks";
import { live, type Live } from "./live";

type Options = Parameters<typeof live>[1];

/** Live data for as long as a component is shown. It begins anew when `inputs` change. */
export function useLive<T>(
  read: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[],
  options: Options = {},
): Live<T> {
  const found = useMemo(() => live(read, options), inputs);
  useEffect(() => () => found.close(), [found]);
  return found;
}
