package linkmeter

import (
	"time"

	"golang.org/x/sys/unix"
)

// readTCPInfo reads TCP_INFO. A kernel before 4.9 leaves what it does not know at zero.
func readTCPInfo(fd int) (tcpInfo, bool) {
	x, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return tcpInfo{}, false
	}
	return tcpInfo{
		counters:  counters{segments: uint64(x.Data_segs_out), retransmitted: uint64(x.Total_retrans), needless: uint64(x.Dsack_dups)},
		roundTrip: time.Duration(x.Rtt) * time.Microsecond, deviation: time.Duration(x.Rttvar) * time.Microsecond,
		deliveryRate: float64(x.Delivery_rate), acked: time.Duration(x.Last_ack_recv) * time.Millisecond,
	}, true
}
