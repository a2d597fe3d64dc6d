package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is muster.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "muster.dev", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Tenant{}, &TenantList{},
		&Site{}, &SiteList{},
		&VirtualSite{}, &VirtualSiteList{},
		&RegistrationToken{}, &RegistrationTokenList{},
		&CollectionPolicy{}, &CollectionPolicyList{},
		&HealthPolicy{}, &HealthPolicyList{},
		&AlertRules{}, &AlertRulesList{},
		&LogRules{}, &LogRulesList{},
		&AlertRoute{}, &AlertRouteList{},
		&VirtualKubernetes{}, &VirtualKubernetesList{},
		&Override{}, &OverrideList{},
		&Rollout{}, &RolloutList{},
		&RolloutPolicy{}, &RolloutPolicyList{},
		&RolloutState{}, &RolloutStateList{},
		&GateCheck{}, &GateCheckList{},
		&SoftwareVersion{}, &SoftwareVersionList{},
		&SoftwarePolicy{}, &SoftwarePolicyList{},
		&HostConfiguration{}, &HostConfigurationList{},
		&VirtualHost{}, &VirtualHostList{},
		&AdvertisePolicy{}, &AdvertisePolicyList{},
		&SavedViews{}, &SavedViewsList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
