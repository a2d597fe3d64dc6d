import Markdown, { type Components } from "react-markdown";
import { Link } from "wouter";
import { safeURL } from "../lib/alert-filter";

const inConsole = (href: string) => href.startsWith("/") && !href.startsWith("//");

const COMPONENTS: Components = {
  a: ({ href = "", children }) =>
    inConsole(href) ? (
      <Link href={href}>{children}</Link>
    ) : safeURL(href) ? (
      <a href={href} target="_blank" rel="noreferrer">
        {children}
      </a>
    ) : (
      <>{children}</>
    ),
};

/** Markdown as elements: HTML in it is text, images are left out, and links are http, https or pages of ours. */
export default function SafeMarkdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <Markdown components={COMPONENTS} disallowedElements={["img"]}>
        {text}
      </Markdown>
    </div>
  );
}
