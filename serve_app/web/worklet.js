/** Loads a worklet's module, which the browser fetches only when it is wanted. */

import { Problem } from "./problem.js";

/** @param {AudioContext} context  @param {string} file  beside this one */
export async function loadWorklet(context, file) {
  try {
    await context.audioWorklet.addModule(new URL(file, import.meta.url));
  } catch {
    throw new Problem("unreachable");
  }
}
