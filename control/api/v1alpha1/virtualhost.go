package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/vhost"
)

// VirtualHost is a Service of some of the tenant's sites that is reached by name from others,
// where AdvertisePolicies of the namespace say so. Connections go through the regionals,
// with TLS from site to site.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualhosts,singular=virtualhost,shortName=vhost
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Virtual Site",type=string,JSONPath=`.spec.virtualSite`
// +kubebuilder:printcolumn:name="Providers",type=integer,JSONPath=`.status.providers`
// +kubebuilder:printcolumn:name="Online",type=integer,JSONPath=`.status.providersOnline`
// +kubebuilder:printcolumn:name="Consumers",type=integer,JSONPath=`.status.consumers`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: at most 63 lower-case letters, digits or '-'"
type VirtualHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualHostSpec   `json:"spec"`
	Status VirtualHostStatus `json:"status,omitempty"`
}

// VirtualHostProtocol is what is spoken with a virtual host.
//
// +kubebuilder:validation:Enum=TCP;HTTP
type VirtualHostProtocol string

const (
	// ProtocolTCP passes on connections: what is spoken over them is the applications' business.
	ProtocolTCP VirtualHostProtocol = "TCP"
	// ProtocolHTTP passes on requests, of HTTP/1.1 and HTTP/2 without TLS, each by its routes.
	ProtocolHTTP VirtualHostProtocol = "HTTP"
)

// VirtualHostSpec says what is reached, and where it is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || size(self.routes) == 0 || (has(self.protocol) && self.protocol == 'HTTP')",message="routes: of HTTP alone: set protocol to HTTP"
type VirtualHostSpec struct {
	// Host is the name under which it is reached: on sites where it is advertised, a
	// Service of this name stands in the namespace. Default: the object's own name.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Host string `json:"host,omitempty"`
	// Service of this namespace that serves it; with routes, what none of them is for.
	Service VirtualHostService `json:"service"`
	// VirtualSite whose sites serve it: NAMESPACE/NAME as the tenant's users type it, or
	// NAME of one in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	VirtualSite string `json:"virtualSite"`
	// Protocol: TCP, or HTTP where requests are routed.
	// +kubebuilder:default=TCP
	// +optional
	Protocol VirtualHostProtocol `json:"protocol,omitempty"`
	// Routes lead requests to other Services of this namespace on the same sites. Of those
	// that match, one with a host goes before one without, and then the longest path.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Routes []VirtualHostRoute `json:"routes,omitempty"`
}

// VirtualHostRoute leads some of the requests to a Service.
type VirtualHostRoute struct {
	// Host that the request is for, without a port; empty: any.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Host string `json:"host,omitempty"`
	// Path with which that of the request begins, by whole segments: /api is for /api and
	// /api/v1, and not for /apix. The Service gets it as it is. Default: /.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[-a-zA-Z0-9._~!$&'()*+,;=:@/]*$`
	// +optional
	Path string `json:"path,omitempty"`
	// Service of this namespace.
	Service VirtualHostService `json:"service"`
}

// RoutesInOrder are its routes in the order in which they are tried.
func (s *VirtualHostSpec) RoutesInOrder() []vhost.Route {
	var out []vhost.Route
	for _, r := range s.Routes {
		out = append(out, vhost.Route{Host: r.Host, Path: cmp.Or(r.Path, "/"), Service: r.Service.Name, Port: int(r.Service.Port)})
	}
	vhost.SortRoutes(out)
	return out
}

// VirtualHostService is a Service and a port of it.
type VirtualHostService struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Port of the Service, by number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// VirtualHostStatus is what Muster observed.
type VirtualHostStatus struct {
	// Host is the name under which it is reached.
	// +optional
	Host string `json:"host,omitempty"`
	// Providers are sites that serve it.
	// +kubebuilder:default=0
	// +optional
	Providers int32 `json:"providers"`
	// ProvidersOnline are those of them that are connected.
	// +kubebuilder:default=0
	// +optional
	ProvidersOnline int32 `json:"providersOnline"`
	// Consumers are sites to which it is advertised.
	// +kubebuilder:default=0
	// +optional
	Consumers int32 `json:"consumers"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// VirtualHostList is a list of them.
type VirtualHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualHost `json:"items"`
}

// AdvertisePolicy says from which sites a VirtualHost of its namespace is reached. Several
// of one host add up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Virtual Host",type=string,JSONPath=`.spec.virtualHost`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.port`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AdvertisePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AdvertisePolicySpec   `json:"spec"`
	Status AdvertisePolicyStatus `json:"status,omitempty"`
}

// AdvertisePolicySpec says what is advertised where.
type AdvertisePolicySpec struct {
	// VirtualHost of the namespace, by name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	VirtualHost string `json:"virtualHost"`
	// VirtualSites on whose sites it is reached: NAMESPACE/NAME as the tenant's users type
	// it, or NAME of one in the same namespace.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +listType=set
	VirtualSites []string `json:"virtualSites"`
	// Port under which it is reached; default: that of the Service. Policies of one host
	// have to agree.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// AdvertisePolicyStatus is what Muster observed.
type AdvertisePolicyStatus struct {
	// Sites to which it advertises.
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// AdvertisePolicyList is a list of them.
type AdvertisePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdvertisePolicy `json:"items"`
}
