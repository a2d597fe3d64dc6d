// Package logs is the door to a region's logs: there is no code here, only what each part
// is for and may touch; internal/archtest holds it. A line goes from the left to the
// right, and no part reaches past its neighbour:
//
//		sender ─▶ intake ─▶ store (embedded or elastic) ◀─ query ◀─ fan-out (aggregator/logs)
//
//	  - intake takes lines from sites, which may be hostile, puts them into queues on disk, and
//	    from there into a Sink. It may touch the network and its own directory, and alone
//	    the durable queue (internal/spool). Of store it knows the record and its limits, not
//	    which store there is. It answers no queries.
//	  - store is the record, the queries over records, and the interface Store. It touches
//	    neither disk nor network, and decides neither who may read nor what sites may send.
//	  - store/embedded (bleve on the disk, no network) and store/elastic (a cluster, no disk)
//	    implement it, and know neither each other nor intake nor query. store/storetest is the
//	    suite that both pass.
//	  - query serves searches and tails of one tenant at a time to the fan-out, in the
//	    shapes of internal/wire. It reads through Store, writes nothing, touches no disk,
//	    and must stay behind a private listener.
//
// cmd/internal/regional brings them together; the log rules of alerting read a store
// through an interface of their own.
package logs
