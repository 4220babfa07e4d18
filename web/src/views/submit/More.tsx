import type { Inputs } from "./inputs";
import { PREEMPTIBLE } from "./preemptible";

/** Wishes that few jobs have. */
export function More({ inputs, isOpen, isSweep = false }: { inputs: Inputs; isOpen: boolean; isSweep?: boolean }) {
  const { text, tick, choice } = inputs;
  return (
    <details class="panel submit-more" open={isOpen}>
      <summary>More wishes</summary>
      <div class="submit-grid">
        {!isSweep && (
          <>
            {text("after", "After", "Start after these: 12, 13, @ or a name.")}
            {choice("afterKind", "After they", [
              ["ok", "have succeeded"],
              ["any", "are over"],
              ["fail", "have failed"],
            ])}
            {text("begin", "Not before", "22:00, 2026-12-01 08:00, +2h or tomorrow.")}
            {text("array", "Array", "One command, many times: 1-16 or 1-16%4.")}
          </>
        )}
        {text("only", "Only these GPUs", "Wait for these: 0, 1.")}
        {text("prefer", "Rather these GPUs", "Take these first when they are free.")}
        {text("gpuType", "GPU model", "A part of its name: h200.")}
        {text("cpus", "CPUs", "How many it books.")}
        {text("mem", "Memory", "Of the machine: 32G.")}
        {text("retries", "Retries", "How often it is tried again.")}
        {text("retryOn", "Retry only on", "gpu-oom, lost; empty: on every failure.")}
        {text("grace", "Grace", "Time between TERM and KILL; empty: 10s.")}
        {text("tags", "Tags", "Words to find it by, with commas between.")}
        {!isSweep &&
          choice("notify", "Tell me", [
            ["", "as the settings say"],
            ["end", "when it is over"],
            ["failure", "when it fails"],
            ["never", "never"],
          ])}
        {choice("preemptible", PREEMPTIBLE.label, PREEMPTIBLE.choices)}
        {text("image", "Container image", "The command runs in a container of it.")}
        {choice("engine", "Container engine", [
          ["", "as the settings say"],
          ["podman", "podman"],
          ["docker", "docker"],
          ["apptainer", "apptainer"],
          ["runc", "runc"],
        ])}
        {choice("pull", "Pull the image", [
          ["", "when it is missing"],
          ["always", "always"],
          ["never", "never"],
        ])}
        {text("mounts", "Mounts", "/data or /data:/mnt:ro, one a line.", { isLong: true })}
        {text("patterns", "Metrics in the output", "auto, or an expression a line: loss=(?P<loss>\\S+)", { isLong: true })}
        {text("variables", "Variables", "NAME=value, one a line.", { isLong: true })}
      </div>
      <div class="submit-ticks">
        {!isSweep && tick("hold", "Hold it until it is released")}
        {tick("urgent", "Suspend preemptible jobs if no GPU is free")}
        {tick("noCudaIpc", "Its processes share no GPU memory (CUDA IPC)")}
        {tick("restartable", "It may run again after a power cut")}
        {tick("bind", "Keep it to the CPUs near its GPUs")}
      </div>
    </details>
  );
}
