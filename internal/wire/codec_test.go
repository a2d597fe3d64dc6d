package wire

import (
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// lent counts the buffers that are out.
type lent struct{ n int }

func (l *lent) Get(size int) *[]byte { l.n++; b := make([]byte, size); return &b }
func (l *lent) Put(*[]byte)          { l.n-- }

func TestCodecGivesBuffersBack(t *testing.T) {
	for name, text := range map[string]string{"small": "x", "pooled": strings.Repeat("x", 5000)} {
		t.Run(name, func(t *testing.T) {
			in := &Hello{Revision: text}
			data, err := Codec.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			pool := &lent{}
			buf := pool.Get(16 << 10) // as a transport reads into
			*buf = (*buf)[:copy(*buf, data.Materialize())]
			data.Free()
			read := mem.BufferSlice{mem.NewBuffer(buf, pool)}
			out := &Hello{}
			if err := Codec.Unmarshal(read, out); err != nil {
				t.Fatal(err)
			}
			read.Free() // gRPC does that
			if pool.n != 0 {
				t.Error("the buffer that the message was read from is never used again")
			}
			if !proto.Equal(in, out) {
				t.Errorf("got %v, want %v", out, in)
			}
		})
	}
}

func TestCodecTakesMessagesAlone(t *testing.T) {
	if _, err := Codec.Marshal("text"); err == nil {
		t.Error("a text was marshalled")
	}
	if err := Codec.Unmarshal(nil, new(string)); err == nil {
		t.Error("a text was unmarshalled")
	}
}
