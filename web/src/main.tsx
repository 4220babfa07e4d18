import { computed, effect, signal } from "@preact/signals";
import { render } from "preact";
import { App } from "./App";
import { listen, stopListening } from "./api/stream";
import { listenToKeys } from "./keys";
import { isSignedIn, signInFromAddress } from "./state/session";
import { watched, watchEnds } from "./state/watched";
import "./style/page.css";

listenToKeys();
await signInFromAddress();
// A browser keeps about six connections to one place: a hidden tab closes its own, and connects again later. One that is
// to tell of the end of jobs keeps it.
const isSeen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (isSeen.value = !document.hidden));
const isListening = computed(() => isSignedIn.value && (isSeen.value || watched.value.size > 0));
effect(() => (isListening.value ? listen() : stopListening()));
watchEnds();
render(<App />, document.getElementById("page")!);
