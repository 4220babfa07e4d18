/** What is asked of a new job, and of one that is edited. */
export const PREEMPTIBLE: { label: string; choices: [text: string, words: string][] } = {
  label: "Suspended for urgent jobs",
  choices: [
    ["", "as the settings say"],
    ["yes", "it may be"],
    ["no", "never"],
  ],
};
