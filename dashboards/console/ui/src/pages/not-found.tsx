import { Link, useLocation } from "wouter";
import { Empty } from "../components/states";
import { useTitle } from "../components/shell";

export function NotFoundPage() {
  const [location] = useLocation();
  useTitle("Not found");
  return (
    <div className="page">
      <Empty page title="There is no such page">
        <p>
          <code>{location}</code> leads nowhere. Perhaps the link is from another version of the console.
        </p>
        <Link href="/" className="button">
          Go to the fleet
        </Link>
      </Empty>
    </div>
  );
}
