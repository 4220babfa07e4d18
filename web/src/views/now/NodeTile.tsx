import type { Node } from "../../api/types";
import { to } from "../../router";
import { size } from "../../words";

const MOST_BOXES = 16; // cards of one type that are drawn one by one
const MOST_JOBS = 6;
const USUAL = ["idle", "in use", "partly in use"]; // what the boxes and bars say better

/** One machine of a cluster: its cards, what is used of it, our jobs there, and why it is out. */
export function NodeTile({ node }: { node: Node }) {
  const jobs = node.jobs.slice(0, MOST_JOBS);
  const more = node.jobs.length - jobs.length;
  const isOut = node.state === "out";
  return (
    <article class={`panel tile node-tile node-${node.state}`} aria-label={`node ${node.name}`}>
      <header>
        <h3>{node.name}</h3>
        <span class="faint tile-name">{node.partitions.join(", ")}</span>
        <span class={`badge badge-${node.state}`}>{isOut ? node.says : node.state}</span>
      </header>
      {node.gpus.map((gpus) => (
        <Cards key={gpus.type} {...gpus} />
      ))}
      {!node.gpus.length && <p class="faint">no GPUs</p>}
      <div class="node-bars">
        <Bar name="CPUs" used={node.cpus_used} total={node.cpus} value={`${node.cpus_used} of ${node.cpus}`} />
        <Bar name="memory" used={node.memory_used_bytes} total={node.memory_bytes} value={`${size(node.memory_used_bytes)} of ${size(node.memory_bytes)}`} />
      </div>
      {note(node) && <p class={isOut ? "node-why" : "faint"}>{note(node)}</p>}
      {jobs.length > 0 && (
        <ul class="holders">
          {jobs.map((job) => (
            <li key={job.id}>
              <a href={to(`job/${job.id}`)}>job {job.name ? `${job.id} (${job.name})` : job.id}</a>
              {job.gpus && <span class="faint"> on GPU {job.gpus.replaceAll(",", ", ")}</span>}
            </li>
          ))}
          {more > 0 && <li class="faint">and {more} more</li>}
        </ul>
      )}
    </article>
  );
}

/** A box for each card of a type; it is unknown which of them are used, so the first ones are shown as used. */
function Cards({ type, total, used }: Node["gpus"][number]) {
  const label = `${used} of ${total} ${type || "GPUs"} in use`;
  return (
    <div class="node-cards" role="img" aria-label={label} title={label}>
      {total <= MOST_BOXES && Array.from({ length: total }, (_, number) => <span key={number} class={number < used ? "node-card is-used" : "node-card"} />)}
      <span class="node-type">
        {used}/{total} {type || "GPU"}
      </span>
    </div>
  );
}

interface BarProps {
  name: string;
  value: string;
  used: number;
  total: number;
}

function Bar({ name, value, used, total }: BarProps) {
  const share = total ? Math.min(1, used / total) : 0;
  return (
    <>
      <span class="faint">{name}</span>
      <div class="node-bar" aria-hidden="true">
        <span style={{ width: `${(100 * share).toFixed(1)}%` }} />
      </div>
      <span>{value}</span>
    </>
  );
}

/** Why it is out; of one that is not, what its system says beyond how much is used. */
function note(node: Node): string {
  if (node.state === "out") return node.why;
  return node.says
    .split(", ")
    .filter((word) => word && !USUAL.includes(word))
    .join(", ");
}
