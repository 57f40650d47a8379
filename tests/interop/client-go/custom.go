package main

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var definitionsResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// install sees to it that the custom kinds are served; they stay.
func (c *check) install() {
	client := c.dynamic.Resource(definitionsResource)
	for _, definition := range c.definitions {
		_, err := client.Create(c.ctx, &definition, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			c.must(err, "installing %s", definition.GetName())
		}
	}
	for _, definition := range c.definitions {
		c.established(definition.GetName())
	}
}

func (c *check) established(name string) {
	c.eventually(name+" is established", func() bool {
		found, err := c.extensions.ApiextensionsV1().CustomResourceDefinitions().Get(c.ctx, name, metav1.GetOptions{})
		c.must(err, "getting %s", name)
		for _, condition := range found.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
}

// resourceOf names the resource of a custom kind.
func (c *check) resourceOf(kind string) schema.GroupVersionResource {
	for _, definition := range c.definitions {
		plural, _, err := unstructured.NestedString(definition.Object, "spec", "names", "plural")
		c.must(err, "the plural of a kind")
		named, _, err := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		c.must(err, "the name of a kind")
		if named == kind {
			return actionsVersion.WithResource(plural)
		}
	}
	c.fail("there is no kind %s", kind)
	return schema.GroupVersionResource{}
}

func (c *check) customResources() {
	c.install()
	c.expect(len(c.samples) == 4, "%d samples", len(c.samples))
	for _, sample := range c.samples {
		c.customResource(sample)
	}
	c.definitionByType()
}

func (c *check) customResource(sample map[string]any) {
	kind := (&unstructured.Unstructured{Object: sample}).GetKind()
	client := c.dynamic.Resource(c.resourceOf(kind)).Namespace(c.namespace)
	wanted := custom(sample, "")
	wanted.SetGenerateName("made-")
	wanted.Object["status"] = map[string]any{"phase": "Ignored"}
	created, err := client.Create(c.ctx, wanted, metav1.CreateOptions{})
	c.must(err, "creating a %s", kind)
	_, hasStatus := created.Object["status"]
	c.expect(created.GetGeneration() == 1 && created.GetKind() == kind && !hasStatus, "created %v", created)
	c.expect(equality.Semantic.DeepEqual(created.Object["spec"], sample["spec"]), "its spec: %v", created.Object["spec"])
	name := created.GetName()

	c.must(unstructured.SetNestedField(created.Object, map[string]any{"nonsense": "pruned"}, "status"), "changing")
	c.must(unstructured.SetNestedField(created.Object, "pruned", "spec", "nonsense"), "changing")
	created.SetLabels(map[string]string{"app": "runner"})
	updated, err := client.Update(c.ctx, created, metav1.UpdateOptions{})
	c.must(err, "updating")
	_, hasStatus = updated.Object["status"]
	c.expect(updated.GetGeneration() == 1 && !hasStatus && updated.GetLabels()["app"] == "runner", "updated %v", updated)
	c.expect(equality.Semantic.DeepEqual(updated.Object["spec"], sample["spec"]), "its spec: %v", updated.Object["spec"])

	status := map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "reason": "Tried", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
	if kind == "EphemeralRunnerSet" {
		status["currentReplicas"] = int64(3)
	}
	stale := updated.DeepCopy()
	updated.Object["status"] = status
	updated.Object["spec"] = map[string]any{}
	updated.SetLabels(nil)
	told, err := client.UpdateStatus(c.ctx, updated, metav1.UpdateOptions{})
	c.must(err, "updating its status")
	c.expect(equality.Semantic.DeepEqual(told.Object["status"], status), "its status: %v", told.Object["status"])
	c.expect(equality.Semantic.DeepEqual(told.Object["spec"], sample["spec"]), "its spec: %v", told.Object["spec"])
	c.expect(told.GetGeneration() == 1 && told.GetLabels()["app"] == "runner", "after it: %v", told)
	_, err = client.UpdateStatus(c.ctx, stale, metav1.UpdateOptions{})
	c.refused(apierrors.IsConflict, err, "a status of another version")
	c.patchCustomResource(client, kind, name)
	list, err := client.List(c.ctx, metav1.ListOptions{LabelSelector: "app=runner"})
	c.must(err, "listing")
	c.expect(len(list.Items) == 1 && list.GetKind() == kind+"List", "listed %v", list)
	c.must(client.Delete(c.ctx, name, metav1.DeleteOptions{}), "deleting")
	_, err = client.Get(c.ctx, name, metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "getting what is deleted")
}

func (c *check) patchCustomResource(client dynamic.ResourceInterface, kind, name string) {
	patch := func(kind types.PatchType, content string, subresources ...string) (*unstructured.Unstructured, error) {
		return client.Patch(c.ctx, name, kind, []byte(content), metav1.PatchOptions{}, subresources...)
	}
	fields := map[string][2]string{
		"AutoscalingRunnerSet": {`"maxRunners":9`, `"maxRunners":"many"`},
		"AutoscalingListener":  {`"maxRunners":9`, `"maxRunners":"many"`},
		"EphemeralRunnerSet":   {`"replicas":9`, `"replicas":"many"`},
		"EphemeralRunner":      {`"proxySecretRef":"p"`, `"proxySecretRef":9`},
	}[kind]
	patched, err := patch(types.MergePatchType, `{"spec":{`+fields[0]+`}}`)
	c.must(err, "patching")
	c.expect(patched.GetGeneration() == 2, "generation %d after a change", patched.GetGeneration())
	_, err = patch(types.MergePatchType, `{"spec":{`+fields[1]+`}}`)
	c.refused(apierrors.IsInvalid, err, "a wrong type")
	c.expect(len(c.status(err).Details.Causes) > 0, "no causes: %v", err)
	patched, err = patch(types.MergePatchType, `{"spec":{"nonsense":1},"status":{"conditions":null}}`, "status")
	c.must(err, "patching its status")
	conditions, _, err := unstructured.NestedSlice(patched.Object, "status", "conditions")
	c.must(err, "its conditions")
	c.expect(len(conditions) == 0 && patched.GetGeneration() == 2, "after it: %v", patched)
	_, err = patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]}]`)
	c.must(err, "a JSON patch")
	_, err = patch(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers"}]`)
	c.must(err, "a JSON patch")
	_, err = patch(types.StrategicMergePatchType, `{}`)
	c.refused(apierrors.IsUnsupportedMediaType, err, "a strategic patch")
}

// definitionByType installs a kind by the typed client, and takes it away with all its objects.
func (c *check) definitionByType() {
	client := c.extensions.ApiextensionsV1().CustomResourceDefinitions()
	preserve := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + c.namespace + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: c.namespace + ".example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget", ShortNames: []string{"wd"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type:                   "object",
						XPreserveUnknownFields: &preserve,
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {
							Type:    "integer",
							Default: &apiextensionsv1.JSON{Raw: []byte("3")},
							Enum:    []apiextensionsv1.JSON{{Raw: []byte("3")}, {Raw: []byte("4")}},
						}},
					}},
				}},
			}},
		},
	}
	_, err := client.Create(c.ctx, definition, metav1.CreateOptions{})
	c.must(err, "installing a kind")
	defer func() {
		err := client.Delete(context.WithoutCancel(c.ctx), definition.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			c.details["left"] = definition.Name
		}
	}()
	c.established(definition.Name)
	widgets := c.dynamic.Resource(schema.GroupVersionResource{Group: definition.Spec.Group, Version: "v1", Resource: "widgets"}).
		Namespace(c.namespace)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definition.Spec.Group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "one"},
		"spec": map[string]any{"anything": "kept"},
	}}
	var created *unstructured.Unstructured
	c.eventually("widgets are served", func() bool {
		created, err = widgets.Create(c.ctx, widget, metav1.CreateOptions{})
		return err == nil
	})
	spec, _, err := unstructured.NestedMap(created.Object, "spec")
	c.must(err, "its spec")
	c.expect(spec["anything"] == "kept" && spec["size"] == int64(3), "created with %v", spec)
	_, err = widgets.Patch(c.ctx, "one", types.MergePatchType, []byte(`{"spec":{"size":5}}`), metav1.PatchOptions{})
	c.refused(apierrors.IsInvalid, err, "a size that there isn't")
	c.must(client.Delete(c.ctx, definition.Name, metav1.DeleteOptions{}), "taking the kind away")
	c.eventually("the kind is gone", func() bool {
		_, err := client.Get(c.ctx, definition.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	c.eventually("widgets are no longer served", func() bool {
		_, err = widgets.List(c.ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
}
