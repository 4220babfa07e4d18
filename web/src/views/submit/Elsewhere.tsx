import { get } from "../../api/client";
import type { Nodes, Status } from "../../api/types";
import { systemName } from "../../places";
import { useLive } from "../../state/useLive";
import type { Inputs } from "./inputs";

/** Where it runs; shown only if there is a cluster. */
export function Elsewhere({ inputs }: { inputs: Inputs }) {
  const never = { concerns: () => false };
  const nodes = useLive((signal) => get<Nodes>("v1/nodes", {}, signal), [], never);
  const status = useLive((signal) => get<Status>("v1/status", {}, signal), [], never);
  const backends = nodes.data.value?.backends ?? [];
  if (!backends.length || !status.data.value) return null;
  const usual = status.data.value.default_backend;
  const partitions = new Set(backends.flatMap((one) => one.nodes).flatMap((node) => node.partitions));
  return (
    <section class="panel">
      <div class="submit-grid">
        {inputs.choice("on", "Where", [
          ["", `as usual (${usual === "local" ? "this machine" : systemName(usual)})`],
          ["local", "this machine"],
          ...backends.map((one) => [one.name, systemName(one.name)] as const),
        ])}
        {inputs.text("partition", "Partition", "Of the cluster; empty: its usual one.", { list: "submit-partitions" })}
      </div>
      <datalist id="submit-partitions">
        {[...partitions].map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </section>
  );
}
