// Where something runs: on cards of this machine, or on a machine of another system.

interface Placed {
  gpus: readonly (number | string)[];
  node: string;
  node_gpus: string;
}

const SYSTEMS: Record<string, string> = { slurm: "Slurm" };

/** A backend as people write it. */
export function systemName(backend: string): string {
  return SYSTEMS[backend] ?? backend;
}

/** As short as it can be: `0, 1` here, `n1:0,1` elsewhere; empty where it has nothing. */
export function place({ gpus, node, node_gpus: there }: Placed): string {
  if (node) return there ? `${node}:${there}` : node;
  return gpus.join(", ");
}

/** The same in words: `GPU 0, 1`, `node n1, GPU 0, 1`. */
export function placeInWords({ gpus, node, node_gpus: there }: Placed): string {
  if (node) return there ? `node ${node}, GPU ${there.replaceAll(",", ", ")}` : `node ${node}`;
  return gpus.length ? `GPU ${gpus.join(", ")}` : "";
}
