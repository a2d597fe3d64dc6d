package intake

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"time"

	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/strangers"
)

const (
	// baseBuffer is what a connection keeps while it is idle; more is leased.
	baseBuffer = 8 << 10
	// keepBuffer is the largest buffer of a worker that is kept between messages.
	keepBuffer = 64 << 10
	// Handshakes under way at a time, and of one address, behind which many sites may stand:
	// before it, nothing is known of the peer.
	handshakes     = 512
	handshakesHost = 256
)

// serveForward accepts until ctx ends.
func (in *Intake) serveForward(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = in.ln.Close() })
	defer stop()
	logged := obs.NewEvery(time.Minute)
	table := strangers.New(strangers.Bounds{Max: handshakes, PerHost: handshakesHost, Life: 2 * in.opts.HandshakeTime}, func(reason, host string) {
		in.metrics.refused.WithLabelValues("handshakes").Inc()
		if left, ok := logged.Pass(reason, in.opts.Now()); ok {
			in.log.Warn("log senders are closed that have not shown who they are", "reason", reason, "address", host, "left_out", left)
		}
	})
	for {
		c, err := in.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			in.log.Warn("accepting a log connection failed", "err", err)
			if !pause(ctx, 100*time.Millisecond) { // out of file descriptors, most likely
				return nil
			}
			continue
		}
		if !table.Add(c) {
			continue
		}
		in.conns.Add(1)
		go func() {
			defer in.conns.Done()
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			f, err := in.admit(ctx, c)
			stranger := table.Forget(c)
			if err != nil {
				if !stranger { // it was closed, which has been told
					return
				}
				in.metrics.refused.WithLabelValues("identity").Inc()
				if left, ok := logged.Pass("identity", in.opts.Now()); ok {
					in.log.Info("a log sender was refused", "peer", c.RemoteAddr().String(), "err", err, "left_out", left)
				}
				return
			}
			defer in.leave(f.site)
			defer f.lease.free()
			in.metrics.connections.Inc()
			defer in.metrics.connections.Dec()
			if err := f.serve(); err != nil && ctx.Err() == nil {
				in.warn(f.site, "connection", "a log connection was closed", "err", err, "peer", c.RemoteAddr().String())
			}
		}()
	}
}

// forwardConn is one authenticated connection.
type forwardConn struct {
	in     *Intake
	ctx    context.Context
	c      *tls.Conn
	cert   *x509.Certificate
	site   *site
	region string
	worker *worker
	lease  lease
	buf    []byte // what has arrived and is not consumed
	base   []byte
	nonce  []byte
	seq    uint64
	silent bool         // it was said that the sender says nothing
	acked  map[hash]int // chunks with ids of their own that this connection has acknowledged lately, with their place
	last   [16]hash
}

// remember keeps the last chunks that were acknowledged here.
func (f *forwardConn) remember(h hash) {
	i := int(f.seq % uint64(len(f.last)))
	delete(f.acked, f.last[i])
	if f.acked == nil {
		f.acked = map[hash]int{}
	}
	f.acked[h], f.last[i] = i+1, h
}

// admit does the TLS handshake and, if the site has a shared key, that of the
// forward protocol.
func (in *Intake) admit(ctx context.Context, raw net.Conn) (_ *forwardConn, err error) {
	hctx, cancel := context.WithTimeout(ctx, in.opts.HandshakeTime)
	defer cancel()
	c := tls.Server(raw, in.opts.TLS)
	if err := c.HandshakeContext(hctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	cs := c.ConnectionState()
	id, region, cert, err := in.peer(&cs)
	if err != nil {
		return nil, err
	}
	s, err := in.enter(id, region)
	if err != nil {
		return nil, err
	}
	f := &forwardConn{in: in, ctx: ctx, c: c, cert: cert, site: s, region: region, worker: in.newWorker(), lease: lease{m: in.memory, s: s},
		base: make([]byte, 0, baseBuffer), nonce: nonce()}
	f.buf = f.base
	if key := in.opts.SharedKey; key != "" {
		if err := f.handshake(key); err != nil {
			f.lease.free()
			in.leave(s)
			return nil, fmt.Errorf("site %s: the forward protocol's handshake, which forwardSharedKeyFile asks of every sender: %w; set the same Shared_Key in the sender's output", id, err)
		}
	}
	return f, nil
}

// maxPing bounds the sender's part of the handshake, in bytes.
const maxPing = 4 << 10

// handshake is HELO, PING, PONG of the forward protocol. Fluent Bit reads each of
// the server's messages with one read, into 1 kB (secure_forward_read in its
// out_forward/forward.c), so each must be one write, and short; and since 5.0 it
// checks the server's digest in the PONG. Fluentd refuses a server with its own
// host name.
func (f *forwardConn) handshake(key string) error {
	salt := hex.EncodeToString(nonce())
	helo := appendStr([]byte{0x92}, "HELO")
	helo = appendStr(append(helo, 0x83), "nonce")
	helo = appendStr(helo, salt)
	helo = appendStr(appendStr(helo, "auth"), "") // no user names: the certificate says who it is
	helo = appendBool(appendStr(helo, "keepalive"), true)
	deadline := time.Now().Add(f.in.opts.HandshakeTime)
	_ = f.c.SetDeadline(deadline)
	if _, err := f.c.Write(helo); err != nil {
		return err
	}
	msg, err := f.next(maxPing, func(int) time.Time { return deadline })
	if err != nil {
		return err
	}
	host, shared, ok, err := checkPing(msg, salt, key)
	if err != nil {
		return err
	}
	f.consume(len(msg))
	reason, digest := "", ""
	switch {
	case host == f.in.opts.Name:
		ok, reason = false, "same hostname on both sides"
	case !ok:
		reason = "shared_key mismatch" // Fluent Bit shows at most 31 bytes of it
	default:
		digest = keyDigest(shared, f.in.opts.Name, salt, key)
	}
	pong := appendBool(appendStr([]byte{0x95}, "PONG"), ok)
	for _, s := range []string{reason, f.in.opts.Name, digest} {
		pong = appendStr(pong, s)
	}
	if _, err := f.c.Write(pong); err != nil {
		return err
	}
	if !ok {
		f.in.warn(f.site, "handshake", "a log sender failed the handshake", "reason", reason)
		return errors.New(reason)
	}
	return nil
}

// keyDigest is hex(SHA-512(salt + host name + nonce + key)).
func keyDigest(salt []byte, host, nonce, key string) string {
	h := sha512.New()
	h.Write(salt)
	h.Write([]byte(host + nonce + key))
	return hex.EncodeToString(h.Sum(nil))
}

// checkPing reads ["PING", host name, salt, digest, user, password]. The salt is
// raw bytes, which Fluent Bit packs as a str.
func checkPing(msg []byte, nonce, key string) (host string, salt []byte, ok bool, err error) {
	h, err := headOf(msg)
	if err != nil || h.kind != kindArray || h.n != 6 {
		return "", nil, false, errors.New("want a PING of 6 elements")
	}
	var elem [4][]byte
	rest := msg[h.size:]
	for i := range elem {
		var raw []byte
		if raw, rest, err = cut(rest); err != nil {
			return "", nil, false, err
		}
		v := value{raw: raw}
		if v.typ() != typeText {
			return "", nil, false, errors.New("want strings in the PING")
		}
		elem[i] = v.text()
	}
	if string(elem[0]) != "PING" {
		return "", nil, false, errors.New("want a PING")
	}
	host, salt = string(elem[1]), append([]byte(nil), elem[2]...)
	want := keyDigest(salt, host, nonce, key)
	return host, salt, subtle.ConstantTimeCompare([]byte(want), elem[3]) == 1, nil
}

// serve reads messages until the sender leaves or does something wrong.
func (f *forwardConn) serve() error {
	for {
		_ = f.c.SetWriteDeadline(time.Time{})
		var first time.Time
		msg, err := f.next(f.in.opts.MaxMessageBytes, func(have int) time.Time {
			now := time.Now()
			switch {
			case have == 0 && f.seq == 0 && !f.silent && f.in.opts.SharedKey == "":
				return now.Add(min(f.in.opts.HandshakeTime, f.in.opts.IdleTime)) // see silentHint
			case have == 0:
				return now.Add(f.in.opts.IdleTime)
			}
			if first.IsZero() {
				first = now
			}
			return f.in.arriveBy(first, now, have)
		})
		if errors.Is(err, errLarge) {
			if err = f.oversized(); err == nil {
				continue
			}
		}
		if err != nil {
			if len(f.buf) == 0 && f.seq == 0 && !f.silent && f.in.opts.SharedKey == "" && errors.Is(err, os.ErrDeadlineExceeded) {
				f.silent = true
				f.in.metrics.refused.WithLabelValues("silent").Inc()
				f.in.warn(f.site, "silent", "a log sender has connected and says nothing", "hint", silentHint, "peer", f.c.RemoteAddr().String())
				continue
			}
			if len(f.buf) == 0 && (isEOF(err) || errors.Is(err, os.ErrDeadlineExceeded)) {
				return nil // between messages
			}
			f.in.metrics.messages.WithLabelValues("broken").Inc()
			return fmt.Errorf("reading a message, %d bytes in: %w", len(f.buf), err)
		}
		if err := f.in.stillGood(f.site.id, f.cert); err != nil {
			return err
		}
		f.seq++
		result, err := f.process(msg)
		f.in.metrics.messages.WithLabelValues(result).Inc()
		if err != nil {
			return err
		}
		f.consume(len(msg))
	}
}

// silentHint: senders connect when they have something to send. One that then says nothing
// waits for the greeting of the handshake.
const silentHint = "if Shared_Key is set in its output (shared_key in Fluentd's), it waits for a handshake that is not served here: remove it, the site's certificate says who it is, or set regionals[].logs.forwardSharedKeyFile"

// next returns the next message, which stays in f.buf until consume. deadline is
// asked before each read, with the number of bytes that are there.
func (f *forwardConn) next(limit int, deadline func(have int) time.Time) ([]byte, error) {
	var s scanner
	for {
		done, err := s.run(f.buf, limit)
		if err != nil {
			return nil, err
		}
		if done {
			return f.buf[:s.pos], nil
		}
		at := deadline(len(f.buf))
		_ = f.c.SetReadDeadline(at)
		if len(f.buf) == cap(f.buf) {
			// The room grows with what has arrived, never with what a header claims.
			ctx, cancel := context.WithDeadline(f.ctx, at)
			err := f.room(ctx, 2*cap(f.buf))
			cancel()
			if err != nil {
				return nil, err
			}
		}
		n, err := f.c.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if err != nil && n == 0 {
			return nil, err
		}
	}
}

// room moves what has arrived into a buffer of n bytes.
func (f *forwardConn) room(ctx context.Context, n int) error {
	if err := f.lease.grow(ctx, int64(n)); err != nil {
		return err
	}
	old := f.buf
	f.buf = append(make([]byte, 0, n), old...)
	if cap(old) > baseBuffer {
		f.lease.shrink(int64(cap(old)))
	}
	return nil
}

// consume drops the first n bytes, and the large buffer if what is left is small.
func (f *forwardConn) consume(n int) {
	left := f.buf[n:]
	if cap(f.buf) > baseBuffer && len(left) <= baseBuffer {
		f.buf = append(f.base[:0], left...)
		f.lease.free()
		f.worker.release()
		return
	}
	f.buf = f.buf[:copy(f.buf, left)]
}

// process queues one message and acknowledges it. An error closes the connection;
// that is also how a message is refused, since the protocol has no word for it: a
// sender with acknowledgements keeps the message and says so in its own log.
func (f *forwardConn) process(b []byte) (result string, err error) {
	m, err := parseMessage(b)
	if err != nil {
		return "broken", err
	}
	if m.opts.signal != 0 {
		f.in.metrics.refused.WithLabelValues("signal").Inc()
		return "refused", fmt.Errorf("tag %.100q holds %s, and this is the intake of logs; match only logs in the sender's output, or send %[2]s elsewhere", m.tag, signalName(m.opts.signal))
	}
	wait, cancel := context.WithTimeout(f.ctx, f.in.opts.MaxDelay)
	defer cancel()

	payload := m.entries
	held := f.lease.n
	defer func() { f.lease.shrink(f.lease.n - held) }()
	if m.mode == modePacked && m.opts.compressed != "" && m.opts.compressed != "text" {
		if payload, err = f.in.decompress(wait, &f.lease, m.opts.compressed, payload, f.in.trimEntries); err != nil {
			return "broken", fmt.Errorf("tag %.100q, %d bytes of %.16s: %w", m.tag, len(m.entries), m.opts.compressed, err)
		}
	}
	return f.take(wait, &m, payload)
}

// take queues the records of a message and acknowledges it.
func (f *forwardConn) take(wait context.Context, m *message, payload []byte) (result string, err error) {
	h, stable := f.identify(m, payload)
	if stable && len(m.opts.chunk) > 0 && f.site.known(h) {
		f.site.mu.Lock()
		f.site.duplicates++
		f.site.mu.Unlock()
		return "duplicate", f.ack(m.opts.chunk)
	}
	if after, err := f.in.budget(wait, f.site, len(payload)); err != nil {
		return "delayed", fmt.Errorf("%w; it may send again in %s", err, after.Round(time.Second))
	}
	charged := int64(len(payload))
	defer func() {
		if err != nil {
			f.in.quota.add(f.site.id.Tenant, -charged) // it comes again
		}
	}()
	if err := f.lease.grow(wait, int64(min(workBytes, 3*len(payload)+4<<10))); err != nil {
		return "delayed", err
	}
	o, err := f.worker.deliver(delivery{site: f.site, region: f.region, tag: m.tag, hash: h, records: f.records(m, payload), wait: wait})
	if err != nil {
		return "delayed", err
	}
	if m.opts.size >= 0 && m.mode != modeMessage && m.opts.size != int64(o.total) {
		f.in.metrics.messages.WithLabelValues("size differs").Inc()
	}
	if len(m.opts.chunk) == 0 {
		return "stored", nil
	}
	if stable {
		f.site.remember(h)
		if m.unique {
			f.remember(h)
		}
	}
	return "stored", f.ack(m.opts.chunk)
}

// oversized takes a message that is larger than it may be, if it is not once its overlong
// texts are cut: see oversize. It reads the message from what has arrived of it and from
// the connection.
func (f *forwardConn) oversized() error {
	in := f.in
	first := time.Now()
	all := &paced{r: io.MultiReader(bytes.NewReader(f.buf), f.c), limit: times(in.opts.MaxMessageBytes, oversize), before: func(have int) {
		_ = f.c.SetReadDeadline(in.arriveBy(first, time.Now(), have))
	}}
	ctx, cancel := context.WithTimeout(f.ctx, in.opts.MaxDelay)
	defer cancel()
	l := lease{m: in.memory, s: f.site}
	defer l.free()
	br := bufio.NewReaderSize(all, baseBuffer)
	m, payload, err := in.readOversized(ctx, &l, br)
	if err != nil {
		in.metrics.messages.WithLabelValues("broken").Inc()
		return fmt.Errorf("a message of more than %d bytes: %w", in.opts.MaxMessageBytes, err)
	}
	if err := f.in.stillGood(f.site.id, f.cert); err != nil {
		return err
	}
	// What was cut off has been sent, too.
	f.site.pay(in.opts.Now(), max(0, all.have-len(payload)), 0)
	rest, _ := br.Peek(br.Buffered())
	f.lease.free()
	f.buf = append(f.base[:0], rest...)
	f.seq++
	wait, done := context.WithTimeout(f.ctx, in.opts.MaxDelay)
	defer done()
	defer func() {
		f.lease.free()
		f.worker.release()
	}()
	result := "refused"
	if m.opts.signal == 0 {
		result, err = f.take(wait, &m, payload)
	} else {
		err = fmt.Errorf("tag %.100q holds %s, and this is the intake of logs", m.tag, signalName(m.opts.signal))
	}
	in.metrics.messages.WithLabelValues(result).Inc()
	return err
}

// maxOptions is what the tag and the options of an oversized message may take each.
const maxOptions = 16 << 10

// readOversized reads a message, with its overlong texts cut, decompressed.
func (in *Intake) readOversized(ctx context.Context, l *lease, br *bufio.Reader) (message, []byte, error) {
	m := message{opts: options{size: -1}}
	values := func(n int64, limit int) ([]byte, error) {
		return in.readAll(ctx, l, newTrimmer(br, in.textLimit(), n), limit, 0, nil)
	}
	frame, raw, err := peekHead(br)
	if err != nil || frame.kind != kindArray || frame.n < 2 || frame.n > 4 {
		return m, nil, errors.Join(err, errShape)
	}
	_, _ = br.Discard(len(raw))
	tag, err := values(1, maxOptions)
	if err != nil {
		return m, nil, fmt.Errorf("tag: %w", err)
	}
	if m.tag = (value{raw: tag}).text(); (value{raw: tag}).typ() != typeText {
		return m, nil, errShape
	}
	h, raw, err := peekHead(br)
	if err != nil {
		return m, nil, unexpected(err)
	}
	left := frame.n - 2
	switch h.kind {
	case kindArray:
		_, _ = br.Discard(len(raw))
		m.mode = modeForward
		m.entries, err = values(int64(h.n), in.opts.MaxPayloadBytes)
	case kindStr, kindBin:
		_, _ = br.Discard(len(raw))
		m.mode = modePacked
		m.entries, err = in.readPacked(ctx, l, &io.LimitedReader{R: br, N: int64(h.n)})
	default:
		if left == 0 {
			return m, nil, errShape
		}
		left--
		m.mode = modeMessage
		m.entries, err = values(2, in.opts.MaxPayloadBytes)
	}
	if err != nil {
		return m, nil, err
	}
	if left > 0 {
		opts, err := values(1, maxOptions)
		if err != nil {
			return m, nil, fmt.Errorf("options: %w", err)
		}
		if err := m.options(value{raw: opts}); err != nil {
			return m, nil, err
		}
	}
	return m, m.entries, nil
}

// readPacked reads the entries of a PackedForward. The option that says how they are compressed
// comes behind them, so that their first bytes must do.
func (in *Intake) readPacked(ctx context.Context, l *lease, body *io.LimitedReader) ([]byte, error) {
	br := bufio.NewReaderSize(body, baseBuffer)
	magic, _ := br.Peek(4)
	how := ""
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		how = "gzip"
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		how = "zstd"
	}
	out, err := in.unpackFrom(ctx, l, how, br, 0, in.trimEntries)
	if err == nil {
		_, err = io.Copy(io.Discard, br)
	}
	return out, err
}

// trimEntries cuts overlong texts of entries.
func (in *Intake) trimEntries(r io.Reader) io.Reader {
	return newTrimmer(bufio.NewReader(r), in.textLimit(), -1)
}

func (f *forwardConn) records(m *message, payload []byte) iter.Seq2[entry, error] {
	if m.mode == modeMessage {
		return func(yield func(entry, error) bool) { yield(m.messageEntry(), nil) }
	}
	return entries(payload)
}

// ack sends {"ack": chunk} in one write: Fluent Bit parses what its first read
// returns, and gives up if that is not all of it.
func (f *forwardConn) ack(chunk []byte) error {
	_ = f.c.SetWriteDeadline(time.Now().Add(f.in.opts.HandshakeTime))
	b := appendStr(appendStr([]byte{0x81}, "ack"), string(chunk))
	if _, err := f.c.Write(b); err != nil {
		return fmt.Errorf("acknowledging a chunk: %w", err)
	}
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) }
