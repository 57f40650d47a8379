package main

import (
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

func (c *check) discovery() {
	c.install()
	version, err := c.typed.Discovery().ServerVersion()
	c.must(err, "the version")
	c.expect(version.Major == "1" && version.Minor == "36", "version %+v", version)
	c.details["version"] = version.GitVersion

	requests := &recorder{}
	config := newNetwork().through(c.config, requests)
	aggregated, err := discovery.NewDiscoveryClientForConfig(config)
	c.must(err, "the client for discovery")
	groups, modern, err := aggregated.ServerGroupsAndResources()
	c.must(err, "aggregated discovery")
	c.expect(requests.count(func(string, url.Values) bool { return true }) == 2, "more than /api and /apis: %v", requests.sent)
	legacy, err := discovery.NewDiscoveryClientForConfig(config)
	c.must(err, "the client for discovery")
	legacy.UseLegacyDiscovery = true
	oldGroups, old, err := legacy.ServerGroupsAndResources()
	c.must(err, "legacy discovery")
	c.sameDiscovery(groups, oldGroups, modern, old)
	c.resources(modern)

	core, err := aggregated.ServerResourcesForGroupVersion("v1")
	c.must(err, "the core group")
	c.expect(len(core.APIResources) > 0 && core.GroupVersion == "v1", "the core group: %+v", core)
	_, err = aggregated.ServerResourcesForGroupVersion("no.such.group/v1")
	c.refused(apierrors.IsNotFound, err, "an unknown group")
	preferred, err := aggregated.ServerPreferredNamespacedResources()
	c.must(err, "preferred resources")
	c.expect(len(preferred) > 0, "no preferred resources")
	paths, err := aggregated.OpenAPIV3().Paths()
	c.must(err, "OpenAPI")
	c.expect(paths["api/v1"] != nil && paths["apis/"+actionsVersion.String()] != nil, "OpenAPI has %v", paths)
	document, err := paths["apis/"+actionsVersion.String()].Schema("application/json")
	c.must(err, "the OpenAPI document of the custom kinds")
	c.expect(strings.Contains(string(document), "EphemeralRunner"), "no kind in the OpenAPI document")
	c.mapper(aggregated)
}

func (c *check) sameDiscovery(groups, oldGroups []*metav1.APIGroup, modern, old []*metav1.APIResourceList) {
	names := func(groups []*metav1.APIGroup) []string {
		var found []string
		for _, group := range groups {
			found = append(found, group.Name+" "+group.PreferredVersion.GroupVersion)
		}
		slices.Sort(found)
		return found
	}
	c.expect(slices.Equal(names(groups), names(oldGroups)), "groups: %v against %v", names(groups), names(oldGroups))
	now, before := describe(modern), describe(old)
	for name, description := range now {
		c.expect(before[name] == description, "%s: %s, by legacy discovery %s", name, description, before[name])
	}
	c.expect(len(now) == len(before), "%d resources, by legacy discovery %d", len(now), len(before))
}

// describe tells of each resource what a client goes by.
func describe(lists []*metav1.APIResourceList) map[string]string {
	found := map[string]string{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			verbs := slices.Sorted(slices.Values([]string(resource.Verbs)))
			scope := "cluster"
			if resource.Namespaced {
				scope = "namespace"
			}
			singular := resource.SingularName
			if strings.Contains(resource.Name, "/") {
				// Only aggregated discovery has it for a subresource.
				singular = "-"
			}
			words := slices.Concat([]string{resource.Kind, singular, scope}, verbs, resource.ShortNames, resource.Categories)
			found[list.GroupVersion+"/"+resource.Name] = strings.Join(words, " ")
		}
	}
	return found
}

func (c *check) resources(lists []*metav1.APIResourceList) {
	found := describe(lists)
	for name, wanted := range map[string]string{
		"v1/pods":        "Pod pod namespace create delete deletecollection get list patch update watch po all",
		"v1/pods/status": "Pod - namespace get patch update",
		"v1/pods/log":    "Pod - namespace get",
		"v1/namespaces":  "Namespace namespace cluster create delete get list patch update watch ns",
		"v1/secrets":     "Secret secret namespace create delete deletecollection get list patch update watch",
		"coordination.k8s.io/v1/leases": "Lease lease namespace create delete deletecollection get list patch " +
			"update watch",
		"actions.github.com/v1alpha1/ephemeralrunners": "EphemeralRunner ephemeralrunner namespace create delete " +
			"deletecollection get list patch update watch",
		"actions.github.com/v1alpha1/ephemeralrunners/status": "EphemeralRunner - namespace get patch update",
	} {
		c.expect(found[name] == wanted, "%s: %q, not %q", name, found[name], wanted)
	}
}

func (c *check) mapper(client discovery.DiscoveryInterface) {
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapper := restmapper.NewShortcutExpander(deferred, client, nil)
	for _, name := range []string{"po", "pod", "pods"} {
		kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: name})
		c.must(err, "the kind of %s", name)
		c.expect(kind == schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "%s is %v", name, kind)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: actionsVersion.Group, Kind: "AutoscalingRunnerSet"})
	c.must(err, "the resource of AutoscalingRunnerSet")
	c.expect(mapping.Resource == actionsVersion.WithResource("autoscalingrunnersets"), "it is %v", mapping.Resource)
	c.expect(mapping.Scope.Name() == meta.RESTScopeNameNamespace, "it is of scope %v", mapping.Scope)
	mapping, err = mapper.RESTMapping(schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, "v1")
	c.must(err, "the resource of ClusterRole")
	c.expect(mapping.Scope.Name() == meta.RESTScopeNameRoot, "it is of scope %v", mapping.Scope)
	_, err = mapper.RESTMapping(schema.GroupKind{Group: actionsVersion.Group, Kind: "NoSuchKind"})
	c.refused(meta.IsNoMatchError, err, "the resource of an unknown kind")
}
