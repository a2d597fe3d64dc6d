package status

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// weigh is about how many bytes an object takes once it is decoded, by what is on the wire:
// an empty container is 2 bytes there and 400 in memory. It reads the field numbers that
// core/v1 types have in their tags, allocates nothing, and leaves it to Unmarshal to say what
// is wrong.
func weigh(k kind, b []byte) int {
	t := reflect.TypeOf(newObject(k)).Elem()
	return int(t.Size()) + weighMessage(shapeOf(t), b, weighDepth)
}

// weighDepth is more than core/v1 has messages in each other.
const weighDepth = 32

// mapEntry is about what one entry of a map takes beside its key and its value.
const mapEntry = 48

// shape is what a type of core/v1 makes of each field of its message.
type shape map[protowire.Number]fieldShape

type fieldShape struct {
	each    int   // bytes that each occurrence takes, beside what it points to
	message shape // of what is in it; nil: it is a string, bytes or a number
}

var shapes sync.Map // reflect.Type → shape

func shapeOf(t reflect.Type) shape {
	if s, ok := shapes.Load(t); ok {
		return s.(shape)
	}
	out := shape{}
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue // "-", or none: what is in it has a form of its own, such as a time
		}
		n, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		var s fieldShape
		ft := f.Type
		switch {
		case ft.Kind() == reflect.Map:
			value := fieldShape{each: int(ft.Elem().Size())}
			if ft.Elem().Kind() == reflect.Struct {
				value.message = shapeOf(ft.Elem())
			}
			s = fieldShape{each: int(ft.Key().Size()) + mapEntry, message: shape{2: value}}
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() != reflect.Uint8, ft.Kind() == reflect.Pointer:
			s = fieldShape{each: int(ft.Elem().Size())}
			ft = ft.Elem()
			fallthrough
		default:
			if ft.Kind() == reflect.Struct {
				s.message = shapeOf(ft)
			}
		}
		out[protowire.Number(n)] = s
	}
	shapes.Store(t, out)
	return out
}

func weighMessage(s shape, b []byte, depth int) (sum int) {
	for len(b) > 0 && depth > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return sum
		}
		b = b[n:]
		f := s[num]
		sum += f.each
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return sum
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return sum
		}
		b = b[n:]
		if f.message == nil {
			sum += len(v)
		} else {
			sum += weighMessage(f.message, v, depth-1)
		}
	}
	return sum
}
