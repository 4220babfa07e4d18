import { refused, signIn } from "../state/session";

/** A page without a token: it says where to get one. */
export function SignIn() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    void signIn(String(data.get("code") ?? ""));
  };
  return (
    <main class="sign-in">
      <h1>dibs</h1>
      <p>
        Type <code>dibs web</code> in a terminal on the machine where dibs runs: it prints an address with a code that works
        once. Open that address, or write the code here.
      </p>
      <form onSubmit={submit}>
        <label>
          Code <input name="code" autocomplete="off" autofocus required spellcheck={false} />
        </label>
        <button class="primary">Open</button>
      </form>
      {refused.value && (
        <p class="error" role="alert">
          {refused.value}
        </p>
      )}
    </main>
  );
}
