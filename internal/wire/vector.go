package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// VectorType is the media type of the answer of a regional's engine to an instant query
// whose series health tells apart by tenant and site alone: who sends it in Accept gets a
// vector in a quarter of the bytes that JSON takes, and in a tenth of the time. What is no
// vector of numbers, and every error, is JSON as ever.
//
// It is vectorMagic, the number of series as a uvarint, and of each series the labels
// tenant and site, each with its length as a uvarint before it, and the value as a float64,
// little-endian. Other labels are left out.
const VectorType = "application/vnd.muster.vector"

// vectorMagic begins no JSON.
var vectorMagic = []byte("\x00mv1")

// IsVector says whether an answer is in VectorType.
func IsVector(b []byte) bool { return bytes.HasPrefix(b, vectorMagic) }

// AppendVector begins an answer with so many series.
func AppendVector(b []byte, series int) []byte {
	return binary.AppendUvarint(append(b, vectorMagic...), uint64(series))
}

// AppendSeries appends a series.
func AppendSeries(b []byte, tenant, site string, value float64) []byte {
	return binary.LittleEndian.AppendUint64(AppendSeriesHead(b, tenant, site), math.Float64bits(value))
}

// AppendSeriesHead appends what stands before a series' value.
func AppendSeriesHead(b []byte, tenant, site string) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(tenant))), tenant...)
	return append(binary.AppendUvarint(b, uint64(len(site))), site...)
}

// VectorReader reads an answer in VectorType. Begin with ReadVector.
type VectorReader struct {
	rest []byte
	left uint64
}

var errVectorShort = errors.New("a vector of series breaks off")

// ReadVector returns a reader of an answer for which IsVector is true.
func ReadVector(b []byte) (VectorReader, error) {
	n, size := binary.Uvarint(b[len(vectorMagic):])
	if size <= 0 {
		return VectorReader{}, errVectorShort
	}
	return VectorReader{rest: b[len(vectorMagic)+size:], left: n}, nil
}

// More says whether there is another series. When there is none, an error says that
// something came after the last one.
func (r *VectorReader) More() (bool, error) {
	if r.left == 0 && len(r.rest) > 0 {
		return false, fmt.Errorf("%d bytes after the last series of a vector", len(r.rest))
	}
	return r.left > 0, nil
}

// Expected reads the next series if it begins with head, as AppendSeriesHead writes it.
func (r *VectorReader) Expected(head []byte) (value float64, ok bool) {
	if len(head) == 0 || len(r.rest) < len(head)+8 || !bytes.Equal(r.rest[:len(head)], head) {
		return 0, false
	}
	value = math.Float64frombits(binary.LittleEndian.Uint64(r.rest[len(head):]))
	r.rest, r.left = r.rest[len(head)+8:], r.left-1
	return value, true
}

// Next reads the next series. tenant and site point into the answer.
func (r *VectorReader) Next() (tenant, site []byte, value float64, err error) {
	if tenant, err = r.text(); err != nil {
		return
	}
	if site, err = r.text(); err != nil {
		return
	}
	if len(r.rest) < 8 {
		return nil, nil, 0, errVectorShort
	}
	value = math.Float64frombits(binary.LittleEndian.Uint64(r.rest))
	r.rest, r.left = r.rest[8:], r.left-1
	return tenant, site, value, nil
}

func (r *VectorReader) text() ([]byte, error) {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)-size) {
		return nil, errVectorShort
	}
	text := r.rest[size : size+int(n)]
	r.rest = r.rest[size+int(n):]
	return text, nil
}
