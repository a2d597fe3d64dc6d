// Package cities is a list of real places for simulated sites: where a site of
// the demo stands on the map, and which region it belongs to.
//
// It is data and nothing else; coordinates are those of the city centres, rounded
// to a hundredth of a degree. loadtest/simfleet and cmd/internal read it.
package cities

// City is one place.
type City struct {
	// Name is lower-case letters and '-': it becomes part of a site's name.
	Name string
	// Label is how people write it.
	Label string
	// Country is the ISO 3166-1 alpha-2 code.
	Country string
	// Region is the value of the label region: eu, us, ap, sa, af or me.
	Region string
	// Latitude and Longitude in degrees, north and east positive.
	Latitude, Longitude float64
}

// All returns the cities. They are ordered so that the first n are spread over the
// regions, in about the shares of the whole list.
func All() []City { return append([]City(nil), cities[:]...) }

// In returns the cities of one region, in the order of All.
func In(region string) []City {
	var out []City
	for _, c := range cities {
		if c.Region == region {
			out = append(out, c)
		}
	}
	return out
}

// Regions are the values of City.Region, in the order in which they first appear.
func Regions() []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range cities {
		if !seen[c.Region] {
			seen[c.Region] = true
			out = append(out, c.Region)
		}
	}
	return out
}

var cities = [...]City{
	{"paris", "Paris", "FR", "eu", 48.86, 2.35},
	{"new-york", "New York", "US", "us", 40.71, -74.01},
	{"tokyo", "Tokyo", "JP", "ap", 35.68, 139.69},
	{"london", "London", "GB", "eu", 51.51, -0.13},
	{"sao-paulo", "São Paulo", "BR", "sa", -23.55, -46.63},
	{"san-francisco", "San Francisco", "US", "us", 37.77, -122.42},
	{"singapore", "Singapore", "SG", "ap", 1.35, 103.82},
	{"berlin", "Berlin", "DE", "eu", 52.52, 13.41},
	{"johannesburg", "Johannesburg", "ZA", "af", -26.20, 28.05},
	{"chicago", "Chicago", "US", "us", 41.88, -87.63},
	{"dubai", "Dubai", "AE", "me", 25.20, 55.27},
	{"madrid", "Madrid", "ES", "eu", 40.42, -3.70},
	{"osaka", "Osaka", "JP", "ap", 34.69, 135.50},
	{"dallas", "Dallas", "US", "us", 32.78, -96.80},
	{"rome", "Rome", "IT", "eu", 41.90, 12.50},
	{"bogota", "Bogotá", "CO", "sa", 4.71, -74.07},
	{"sydney", "Sydney", "AU", "ap", -33.87, 151.21},
	{"seattle", "Seattle", "US", "us", 47.61, -122.33},
	{"amsterdam", "Amsterdam", "NL", "eu", 52.37, 4.90},
	{"stockholm", "Stockholm", "SE", "eu", 59.33, 18.07},
	{"miami", "Miami", "US", "us", 25.76, -80.19},
	{"seoul", "Seoul", "KR", "ap", 37.57, 126.98},
	{"warsaw", "Warsaw", "PL", "eu", 52.23, 21.01},
	{"denver", "Denver", "US", "us", 39.74, -104.99},
	{"nairobi", "Nairobi", "KE", "af", -1.29, 36.82},
	{"mumbai", "Mumbai", "IN", "ap", 19.08, 72.88},
	{"santiago", "Santiago", "CL", "sa", -33.45, -70.67},
	{"vienna", "Vienna", "AT", "eu", 48.21, 16.37},
	{"atlanta", "Atlanta", "US", "us", 33.75, -84.39},
	{"nagoya", "Nagoya", "JP", "ap", 35.18, 136.91},
	{"lisbon", "Lisbon", "PT", "eu", 38.72, -9.14},
	{"istanbul", "Istanbul", "TR", "me", 41.01, 28.98},
	{"boston", "Boston", "US", "us", 42.36, -71.06},
	{"dublin", "Dublin", "IE", "eu", 53.35, -6.26},
	{"melbourne", "Melbourne", "AU", "ap", -37.81, 144.96},
	{"los-angeles", "Los Angeles", "US", "us", 34.05, -118.24},
	{"buenos-aires", "Buenos Aires", "AR", "sa", -34.60, -58.38},
	{"copenhagen", "Copenhagen", "DK", "eu", 55.68, 12.57},
	{"bangkok", "Bangkok", "TH", "ap", 13.76, 100.50},
	{"houston", "Houston", "US", "us", 29.76, -95.37},
	{"oslo", "Oslo", "NO", "eu", 59.91, 10.75},
	{"lagos", "Lagos", "NG", "af", 6.52, 3.38},
	{"helsinki", "Helsinki", "FI", "eu", 60.17, 24.94},
	{"phoenix", "Phoenix", "US", "us", 33.45, -112.07},
	{"taipei", "Taipei", "TW", "ap", 25.03, 121.57},
	{"prague", "Prague", "CZ", "eu", 50.08, 14.44},
	{"lima", "Lima", "PE", "sa", -12.05, -77.04},
	{"minneapolis", "Minneapolis", "US", "us", 44.98, -93.27},
	{"fukuoka", "Fukuoka", "JP", "ap", 33.59, 130.40},
	{"budapest", "Budapest", "HU", "eu", 47.50, 19.04},
	{"portland", "Portland", "US", "us", 45.52, -122.68},
	{"riyadh", "Riyadh", "SA", "me", 24.71, 46.68},
	{"athens", "Athens", "GR", "eu", 37.98, 23.73},
	{"bengaluru", "Bengaluru", "IN", "ap", 12.97, 77.59},
	{"detroit", "Detroit", "US", "us", 42.33, -83.05},
	{"zurich", "Zürich", "CH", "eu", 47.38, 8.54},
	{"rio-de-janeiro", "Rio de Janeiro", "BR", "sa", -22.91, -43.17},
	{"jakarta", "Jakarta", "ID", "ap", -6.21, 106.85},
	{"casablanca", "Casablanca", "MA", "af", 33.57, -7.59},
	{"toronto", "Toronto", "CA", "us", 43.65, -79.38},
	{"munich", "Munich", "DE", "eu", 48.14, 11.58},
	{"lyon", "Lyon", "FR", "eu", 45.76, 4.84},
	{"montreal", "Montréal", "CA", "us", 45.50, -73.57},
	{"auckland", "Auckland", "NZ", "ap", -36.85, 174.76},
	{"barcelona", "Barcelona", "ES", "eu", 41.39, 2.17},
	{"vancouver", "Vancouver", "CA", "us", 49.28, -123.12},
	{"sapporo", "Sapporo", "JP", "ap", 43.06, 141.35},
	{"montevideo", "Montevideo", "UY", "sa", -34.90, -56.16},
	{"milan", "Milan", "IT", "eu", 45.46, 9.19},
	{"mexico-city", "Mexico City", "MX", "us", 19.43, -99.13},
	{"manila", "Manila", "PH", "ap", 14.60, 120.98},
	{"hamburg", "Hamburg", "DE", "eu", 53.55, 9.99},
	{"tel-aviv", "Tel Aviv", "IL", "me", 32.09, 34.78},
	{"kansas-city", "Kansas City", "US", "us", 39.10, -94.58},
	{"cape-town", "Cape Town", "ZA", "af", -33.92, 18.42},
	{"brussels", "Brussels", "BE", "eu", 50.85, 4.35},
	{"hanoi", "Hanoi", "VN", "ap", 21.03, 105.85},
	{"salt-lake-city", "Salt Lake City", "US", "us", 40.76, -111.89},
	{"quito", "Quito", "EC", "sa", -0.18, -78.47},
	{"bucharest", "Bucharest", "RO", "eu", 44.43, 26.10},
	{"perth", "Perth", "AU", "ap", -31.95, 115.86},
	{"nashville", "Nashville", "US", "us", 36.16, -86.78},
	{"marseille", "Marseille", "FR", "eu", 43.30, 5.37},
}
