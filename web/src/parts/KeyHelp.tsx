import { isHelpOpen, keyGroups, PALETTE, type Key } from "../keys";
import { Dialog } from "./Dialog";

type Shown = Pick<Key, "keys" | "does">;

const MORE: Shown[] = [{ keys: PALETTE, does: "find a job or a view, or do something" }];

/** All keys that do something here. */
export function KeyHelp() {
  if (!isHelpOpen.value) return null;
  const { everywhere, here } = keyGroups();
  return (
    <Dialog title="Keys" onClose={() => (isHelpOpen.value = false)}>
      {here.length > 0 && <Keys title="In this view" keys={here} />}
      <Keys title="Everywhere" keys={[...MORE, ...everywhere]} />
    </Dialog>
  );
}

function Keys({ title, keys }: { title: string; keys: Shown[] }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl class="keys">
        {keys.map((key) => (
          <div key={key.keys}>
            <dt>
              {key.keys.split(" ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{key.does}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
