import { Component, type ReactNode } from "react";

/** A fault of the page itself: says so, instead of a white window. */
export class Boundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <main className="page">
        <div className="note bad" role="alert">
          <strong>The console has a fault and stopped showing this page.</strong>
          <code>{String(this.state.error)}</code>
          <button type="button" className="button" onClick={() => location.reload()}>
            Load it again
          </button>
        </div>
      </main>
    );
  }
}
