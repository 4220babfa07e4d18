import { Copy } from "../../parts/Copy";
import { to } from "../../router";
import { isReadOnly } from "../../state/session";

const LINES = [
  ["dibs add -- python train.py --lr 0.1", "one job: it starts when a GPU is free"],
  ["dibs add -f commands.txt", "a whole list, one command a line"],
  ["dibs add -p lr 0.1 0.01 -- python train.py --lr {lr}", "the same command with several values"],
] as const;

/** An empty queue: what to type. */
export function First() {
  return (
    <section class="panel first">
      <h1>Nothing has been added yet</h1>
      <p>Type one of these in the folder of your project{isReadOnly.value ? "" : <>, or <a href={to("submit")}>fill in the form</a></>}.</p>
      <ul>
        {LINES.map(([line, does]) => (
          <li key={line}>
            <code>{line}</code> <Copy text={line} label={`copy ${line}`} />
            <span class="faint">{does}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
