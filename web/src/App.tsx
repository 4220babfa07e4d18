import { lazy, Suspense } from "preact/compat";
import type { ComponentType } from "preact";
import { get } from "./api/client";
import { connection } from "./api/stream";
import type { Status } from "./api/types";
import { isHelpOpen, isPaletteOpen } from "./keys";
import { ConfirmDialog } from "./parts/Confirm";
import { Icon, type IconName } from "./parts/Icon";
import { KeyHelp } from "./parts/KeyHelp";
import { Toasts } from "./parts/Toasts";
import { route, to, view } from "./router";
import { isReadOnly, isSignedIn, user } from "./state/session";
import { nextTheme, theme } from "./state/theme";
import { trouble, useTrouble } from "./state/trouble";
import { useTitle } from "./state/useTitle";
import { useLive } from "./state/useLive";
import { Now } from "./views/Now";
import { SignIn } from "./views/SignIn";

interface View {
  name: string;
  label: string;
  icon: IconName;
  shows: ComponentType;
  changes?: true; // it is of no use on a read-only page
}

// What is not needed for the first sight is loaded when it is wanted.
const VIEWS: View[] = [
  { name: "now", label: "Now", icon: "now", shows: Now },
  { name: "jobs", label: "Jobs", icon: "jobs", shows: lazy(() => import("./views/Jobs")) },
  { name: "timeline", label: "Timeline", icon: "timeline", shows: lazy(() => import("./views/Timeline")) },
  { name: "history", label: "History", icon: "history", shows: lazy(() => import("./views/History")) },
  { name: "sweeps", label: "Sweeps", icon: "sweep", shows: lazy(() => import("./views/Sweeps")) },
  { name: "submit", label: "Submit", icon: "submit", shows: lazy(() => import("./views/Submit")), changes: true },
  { name: "manage", label: "Manage", icon: "manage", shows: lazy(() => import("./views/Manage")), changes: true },
];
const EVERY = 5000; // milliseconds: what cannot be recorded is no event
const Job = lazy(() => import("./views/Job"));
const Compare = lazy(() => import("./views/Compare"));
const Sweep = lazy(() => import("./views/Sweep"));
const Palette = lazy(() => import("./parts/Palette"));
const NewSweep = lazy(() => import("./views/NewSweep"));

export function App() {
  useTitle(VIEWS.find((one) => isHere(one.name))?.label ?? "");
  if (!isSignedIn.value) return <SignIn />;
  return (
    <div class="app">
      <header class="bar">
        <a class="brand" href={to("now")}>
          dibs
        </a>
        <nav aria-label="views">
          {VIEWS.filter((one) => !one.changes || !isReadOnly.value).map((one) => (
            <a key={one.name} href={to(one.name)} aria-current={isHere(one.name) ? "page" : undefined} title={one.label}>
              <Icon name={one.icon} />
              <span>{one.label}</span>
            </a>
          ))}
        </nav>
        <div class="bar-end">
          <Connection />
          <span class="who" title={isReadOnly.value ? "this page can change nothing" : undefined}>
            {user.value}
            {isReadOnly.value && " (read-only)"}
          </span>
          <button class="quiet" title="Find or do (Ctrl K)" aria-label="find or do" onClick={() => (isPaletteOpen.value = true)}>
            <Icon name="find" />
          </button>
          <button class="quiet" title="Keys (?)" aria-label="keys" onClick={() => (isHelpOpen.value = true)}>
            <Icon name="keys" />
          </button>
          <button class="quiet" title={`Theme: ${theme.value}`} aria-label={`theme: ${theme.value}`} onClick={nextTheme}>
            <Icon name={theme.value === "system" ? "system" : theme.value === "dark" ? "moon" : "sun"} />
          </button>
        </div>
      </header>
      {connection.value === "lost" && (
        <p class="banner" role="alert">
          The connection to dibs is lost. Running jobs go on; this page comes back by itself.
        </p>
      )}
      {trouble.value && (
        <p class="banner" role="alert">
          Nothing starts and no end is recorded at the moment: {trouble.value}
        </p>
      )}
      {view.value !== "now" && <Standing />}
      <main>
        {view.value === "jobs" && <h1 class="unseen">Jobs</h1>}
        <Suspense fallback={<p class="faint">…</p>}>{shown()}</Suspense>
      </main>
      <Toasts />
      <ConfirmDialog />
      <KeyHelp />
      {isPaletteOpen.value && (
        <Suspense fallback={null}>
          <Palette />
        </Suspense>
      )}
    </div>
  );
}

function shown() {
  const part = route.value.path[1];
  if (view.value === "job") return isNumber(part) ? <Job key={part} /> : <Nothing word="job" named={part} list="jobs" />;
  if (view.value === "compare") return <Compare />;
  if (view.value === "sweeps" && part === "new") return <NewSweep />;
  if (view.value === "sweeps" && part) return isNumber(part) ? <Sweep key={part} /> : <Nothing word="sweep" named={part} list="sweeps" />;
  const Shown = VIEWS.find((one) => one.name === view.value)?.shows;
  if (Shown) return <Shown />;
  return (
    <p>
      There is nothing here. <a href={to("now")}>Go to Now</a>
    </p>
  );
}

function isNumber(text: string | undefined): boolean {
  return /^[1-9]\d{0,14}$/.test(text ?? "");
}

/** An address that was mistyped. */
function Nothing({ word, named, list }: { word: string; named: string | undefined; list: string }) {
  return (
    <p class="error">
      {named ? `“${named.slice(0, 40)}” is not the number of a ${word}.` : `The number of the ${word} is missing.`} <a href={to(list)}>All {word}s</a>
    </p>
  );
}

function isHere(name: string): boolean {
  return view.value === name || (name === "jobs" && (view.value === "job" || view.value === "compare"));
}

/** Nothing starts: that is to be seen wherever the user waits for a start. Now has the switch itself, and what is wrong is in its lists. */
function Standing() {
  const status = useLive((signal) => get<Status>("v1/status", {}, signal), [], {
    concerns: (event) => event.kind.startsWith("queue"),
    every: EVERY,
  });
  useTrouble(status.data.value);
  const { paused = false, paused_projects: projects = [] } = status.data.value ?? {};
  if (!paused && !projects.length) return null;
  return (
    <p class="banner banner-paused" role="status">
      {paused ? "The queue is paused: nothing new starts." : `Paused: ${projects.join(", ")}.`} <a href={to("now")}>Now</a>
    </p>
  );
}

function Connection() {
  const word = { connecting: "connecting", live: "live", lost: "not connected" }[connection.value];
  return (
    <span class={`connection connection-${connection.value}`} title={`The page is ${word}.`}>
      {word}
    </span>
  );
}
