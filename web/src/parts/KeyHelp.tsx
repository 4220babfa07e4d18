import { allKeys, isHelpOpen } from "../keys";
import { Dialog } from "./Dialog";

export function KeyHelp() {
  if (!isHelpOpen.value) return null;
  return (
    <Dialog title="Keys" onClose={() => (isHelpOpen.value = false)}>
      <dl class="keys">
        {allKeys().map((key) => (
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
    </Dialog>
  );
}
