import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Event } from "../../api/stream";
import type { Backend, Node, Nodes as Found } from "../../api/types";
import { systemName } from "../../places";
import { useLive } from "../../state/useLive";
import "../../style/nodes.css";
import { count } from "../../words";
import { NodeTile } from "./NodeTile";

const SHOWN = 24; // nodes of a large cluster, until the user asks for all
const EVERY = 10_000; // milliseconds: another system is not asked without need

const movesJobs = (event: Event) => /^job\.(added|started|running|ended)/.test(event.kind);

/** The machines of other systems, where there is one. */
export function Nodes() {
  const found = useLive((signal) => get<Found>("v1/nodes", {}, signal), [], { concerns: movesJobs, every: EVERY, atMost: EVERY / 2 });
  return <>{found.data.value?.backends.map((backend) => <Cluster key={backend.name} backend={backend} />)}</>;
}

function Cluster({ backend }: { backend: Backend }) {
  const [showsAll, setAll] = useState(false);
  const name = systemName(backend.name);
  const nodes = showsAll ? backend.nodes : ours(backend.nodes).slice(0, SHOWN);
  return (
    <section class="nodes" aria-label={`nodes of ${name}`}>
      <h2>
        {name} <span class="faint">{summary(backend.nodes)}</span>
      </h2>
      {backend.trouble && (
        <p class="panel nodes-trouble" role="status">
          {backend.trouble}
          {backend.remedy && <span class="faint">; {backend.remedy}</span>}
        </p>
      )}
      <div class="tiles node-tiles">
        {nodes.map((node) => (
          <NodeTile key={node.name} node={node} />
        ))}
      </div>
      {backend.nodes.length > SHOWN && (
        <button onClick={() => setAll(!showsAll)}>{showsAll ? "Fewer nodes" : `All ${backend.nodes.length} nodes`}</button>
      )}
    </section>
  );
}

/** Where there are many, those with jobs of ours first; else in the other system's order. */
function ours(nodes: Node[]): Node[] {
  if (nodes.length <= SHOWN) return nodes;
  return [...nodes].sort((a, b) => Number(b.jobs.length > 0) - Number(a.jobs.length > 0));
}

/** `3 nodes, 2 of 6 GPUs in use`; of nodes that can be used. */
function summary(nodes: Node[]): string {
  if (!nodes.length) return "";
  const usable = nodes.filter((node) => node.state !== "out");
  const gpus = usable.flatMap((node) => node.gpus);
  const total = gpus.reduce((sum, one) => sum + one.total, 0);
  const used = gpus.reduce((sum, one) => sum + one.used, 0);
  const out = nodes.length - usable.length;
  return [count(nodes.length, "node"), out > 0 && `${out} out of use`, total > 0 && `${used} of ${count(total, "GPU")} in use`].filter(Boolean).join(" · ");
}
