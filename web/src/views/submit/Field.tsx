import type { ComponentChildren } from "preact";

interface Props {
  field: string;
  label: string;
  hint?: string;
  problem: string | undefined;
  class?: string;
  children: (attributes: Attributes) => ComponentChildren;
}

export interface Attributes {
  id: string;
  "aria-invalid": boolean;
  "aria-describedby": string;
}

export const idOf = (field: string) => `submit-${field}`;

/** A label, its field, and one sentence: what to write, or what is wrong with what was written. */
export function Field({ field, label, hint = "", problem, class: more = "", children }: Props) {
  const id = idOf(field);
  const note = `${id}-note`;
  return (
    <div class={`field ${more}`}>
      <label for={id}>{label}</label>
      {children({ id, "aria-invalid": Boolean(problem), "aria-describedby": note })}
      <p id={note} class={problem ? "error field-note" : "faint field-note"}>
        {problem ?? hint}
      </p>
    </div>
  );
}
