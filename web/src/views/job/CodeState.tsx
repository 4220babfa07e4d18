import { Copy } from "../../parts/Copy";
import type { WholeJob } from "../../api/types";
import { count } from "../../words";
import type { Code } from "./shapes";

const SHOWN = 5000; // lines of a difference

/** The commit that it was added at, and how the tree differed from it. */
export function CodeState({ job }: { job: WholeJob }) {
  const code = job.code as Code | null;
  if (!code) return <p class="faint">It was added in a folder that is in no git repository, or git took too long.</p>;
  return (
    <section class="panel code" aria-label="code">
      {code.commit && (
        <p>
          commit <code>{code.commit}</code> <Copy text={code.commit} label="copy the commit" />
          {code.branch && (
            <>
              {" on "}
              <code>{code.branch}</code>
            </>
          )}
        </p>
      )}
      {code.root && (
        <p class="faint">
          in <code>{code.root}</code>
        </p>
      )}
      {code.snapshot && (
        <p>
          It runs in a copy of the tree: <code>{code.snapshot}</code>
        </p>
      )}
      <p>{code.is_dirty ? "The tree had changes that were not committed." : "The tree was as committed."}</p>
      {code.untracked && code.untracked.length > 0 && (
        <details>
          <summary>{count(code.untracked.length, "file")} that git does not know</summary>
          <pre>{code.untracked.join("\n")}</pre>
        </details>
      )}
      {code.diff && <Diff text={code.diff} />}
    </section>
  );
}

function Diff({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <>
      <div class="diff-head">
        <h2>Difference</h2>
        <Copy text={text} label="copy the difference" />
      </div>
      <pre class="diff" tabIndex={0} aria-label="difference">
        {lines.slice(0, SHOWN).map((line, place) => (
          <span key={place} class={kind(line)}>
            {line}
            {"\n"}
          </span>
        ))}
      </pre>
      {lines.length > SHOWN && <p class="faint">and {count(lines.length - SHOWN, "more line")}: copy it to see them</p>}
    </>
  );
}

function kind(line: string): string | undefined {
  if (/^(diff |index |--- |\+\+\+ |new file|deleted file|rename |similarity )/.test(line)) return "diff-file";
  if (line.startsWith("@@")) return "diff-place";
  if (line.startsWith("+")) return "diff-added";
  return line.startsWith("-") ? "diff-removed" : undefined;
}
