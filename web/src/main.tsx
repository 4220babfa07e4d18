import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./App";
import { listen, stopListening } from "./api/stream";
import { listenToKeys } from "./keys";
import { isSignedIn, signInFromAddress } from "./state/session";
import "./style/page.css";

listenToKeys();
await signInFromAddress();
effect(() => (isSignedIn.value ? listen() : stopListening()));
render(<App />, document.getElementById("page")!);
