package facts

import (
	"maps"
	"os"
	"testing"
	"testing/fstest"
)

func root(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for k, v := range files {
		out[k] = &fstest.MapFile{Data: []byte(v)}
	}
	return out
}

func TestDiscover(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  map[string]string
	}{
		"a server": {
			files: map[string]string{
				"proc/sys/kernel/osrelease": "6.12.48-amd64\n", "proc/sys/kernel/hostname": "shop-12\n",
				"etc/os-release":              "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION_ID=\"13\"\n# x=y\n",
				"sys/class/dmi/id/sys_vendor": "Dell Inc.\n", "sys/class/dmi/id/product_name": "PowerEdge R640\n",
				"sys/devices/system/cpu/online": "0-3,8\n", "proc/meminfo": "MemTotal:       16264800 kB\nMemFree: 1 kB\n",
			},
			want: map[string]string{"arch": "amd64", "os": "debian", "os-version": "13", "kernel": "6.12.48-amd64", "vendor": "Dell Inc.", "product": "PowerEdge R640", "hostname": "shop-12", "cpus": "5", "memory": "16Gi"},
		},
		"a cloud machine": {
			files: map[string]string{"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "t3.large", "usr/lib/os-release": "ID='amzn'\n", "proc/cpuinfo": "processor\t: 0\nx\nprocessor\t: 1\n"},
			want:  map[string]string{"arch": "amd64", "os": "amzn", "vendor": "Amazon EC2", "product": "t3.large", "cloud": "aws", "cpus": "2"},
		},
		"azure": {
			files: map[string]string{"sys/class/dmi/id/sys_vendor": "Microsoft Corporation", "sys/class/dmi/id/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77\n"},
			want:  map[string]string{"arch": "amd64", "vendor": "Microsoft Corporation", "cloud": "azure"},
		},
		"a board without DMI": {
			files: map[string]string{"proc/device-tree/model": "Raspberry Pi 5 Model B\x00"},
			want:  map[string]string{"arch": "amd64", "vendor": "Raspberry", "product": "Raspberry Pi 5 Model B"},
		},
		"a maker that filled in nothing": {
			files: map[string]string{"sys/class/dmi/id/sys_vendor": "To Be Filled By O.E.M.", "sys/class/dmi/id/product_name": "Default string", "sys/class/dmi/id/board_vendor": "ASRock"},
			want:  map[string]string{"arch": "amd64", "vendor": "ASRock"},
		},
		"nothing":         {want: map[string]string{"arch": "amd64"}},
		"damaged figures": {files: map[string]string{"proc/meminfo": "MemTotal: x kB", "sys/devices/system/cpu/online": "3-1", "etc/os-release": "===\n\x00"}, want: map[string]string{"arch": "amd64"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Discover(Options{Root: root(tc.files), Arch: "amd64"}).Labels(); !maps.Equal(got, tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	f := Discover(Options{Root: os.DirFS("/")})
	if f.Kernel == "" || f.CPUs == 0 || f.MemoryMiB == 0 {
		t.Errorf("%+v", f)
	}
	t.Logf("%+v\n%v", f, f.Labels())
}

func FuzzCountRanges(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, s string) {
		if n := countRanges(s); n < 0 {
			t.Errorf("%q counts %d", s, n)
		}
	})
}
