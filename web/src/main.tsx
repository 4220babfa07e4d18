import { effect, signal } from "@preact/signals";
import { render } from "preact";
import { App } from "./App";
import { listen, stopListening } from "./api/stream";
import { listenToKeys } from "./keys";
import { isSignedIn, signInFromAddress } from "./state/session";
import "./style/page.css";

listenToKeys();
await signInFromAddress();
// A browser keeps about six connections to one place: a hidden tab closes its own, and connects again later.
const isSeen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (isSeen.value = !document.hidden));
effect(() => (isSignedIn.value && isSeen.value ? listen() : stopListening()));
render(<App />, document.getElementById("page")!);
