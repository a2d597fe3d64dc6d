import type { Plugin } from "vite";

export function towns(): Plugin;
