import { count } from "../../words";
import type { Preview } from "./sending";
import type { SweepForm } from "./form";

/** How many trials it would have, and the first of them. */
export function PreviewLine({ found, form }: { found: Preview | null; form: SweepForm }) {
  if (!found) return null;
  const isCounted = found.size !== null;
  const isLess = form.method === "grid" && (found.left_out > 0 || form.where.trim() !== "");
  const size = isCounted ? `${isLess ? "Up to " : ""}${count(found.size!, "trial")}` : "Trials without end";
  return (
    <section class="panel" aria-label="preview">
      <h2>{size}</h2>
      {(form.method === "adaptive" || form.method === "population") && <p class="faint">What is tried depends on the results; it may begin so.</p>}
      <ul class="prospects">
        {found.commands.map((command, place) => (
          <li key={place}>
            <code>{command}</code>
          </li>
        ))}
      </ul>
    </section>
  );
}
