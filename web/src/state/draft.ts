// A job that is to be asked for again: another view fills it in, Submit takes it.
import { signal } from "@preact/signals";
import type { components } from "../api/schema";

export type NewJob = components["schemas"]["NewJob"];

export const draft = signal<NewJob | null>(null);
export const draftFrom = signal<number | null>(null); // the job it was: the environment it was added with fits this one too
