import type { VNode } from "preact";
import { Field } from "./Field";
import type { Field as FieldName } from "./form";

interface TextOptions {
  isLong?: boolean;
  class?: string;
  list?: string; // the id of a list of suggestions
}

export interface Inputs<Name extends string = FieldName> {
  text: (field: Name, label: string, hint?: string, options?: TextOptions) => VNode;
  tick: (field: Name, label: string) => VNode;
  choice: (field: Name, label: string, options: readonly (readonly [string, string])[]) => VNode;
}

/** The fields of a form: each shows what it holds, and tells what is typed. */
export function inputsOf<Name extends string>(
  form: Readonly<Record<Name, string | boolean>>,
  problems: Readonly<Partial<Record<Name, string>>>,
  change: (field: Name, value: string | boolean) => void,
): Inputs<Name> {
  return {
    text: (field, label, hint = "", { isLong = false, class: more = "", list } = {}) => (
      <Field key={field} field={field} label={label} hint={hint} problem={problems[field]} class={more}>
        {(attributes) =>
          isLong ? (
            <textarea
              {...attributes}
              rows={3}
              spellcheck={false}
              value={String(form[field])}
              onInput={(event) => change(field, event.currentTarget.value)}
            />
          ) : (
            <input
              {...attributes}
              type="text"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              {...(list ? { list } : {})}
              value={String(form[field])}
              onInput={(event) => change(field, event.currentTarget.value)}
            />
          )
        }
      </Field>
    ),
    tick: (field, label) => (
      <label key={field} class="tick">
        <input type="checkbox" checked={Boolean(form[field])} onChange={(event) => change(field, event.currentTarget.checked)} /> {label}
      </label>
    ),
    choice: (field, label, options) => (
      <Field key={field} field={field} label={label} problem={problems[field]}>
        {(attributes) => (
          <select {...attributes} value={String(form[field])} onChange={(event) => change(field, event.currentTarget.value)}>
            {options.map(([value, word]) => (
              <option key={value} value={value}>
                {word}
              </option>
            ))}
          </select>
        )}
      </Field>
    ),
  };
}
