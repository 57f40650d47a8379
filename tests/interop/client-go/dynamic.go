package main

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func (c *check) dynamicObjects() {
	client := c.dynamic.Resource(configMapsResource).Namespace(c.namespace)
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "first"},
		"data": map[string]any{"key": "value"},
	}}
	created, err := client.Create(c.ctx, wanted, metav1.CreateOptions{FieldManager: "checks", FieldValidation: "Strict"})
	c.must(err, "creating")
	found, err := client.Get(c.ctx, "first", metav1.GetOptions{})
	c.must(err, "getting")
	c.expect(equality.Semantic.DeepEqual(created, found), "got %v, created %v", found, created)
	misspelt := wanted.DeepCopy()
	misspelt.SetName("misspelt")
	misspelt.Object["dta"] = map[string]any{}
	_, err = client.Create(c.ctx, misspelt, metav1.CreateOptions{FieldValidation: "Strict"})
	c.refused(apierrors.IsBadRequest, err, "an unknown field")
	_, err = client.Create(c.ctx, misspelt, metav1.CreateOptions{FieldValidation: "Ignore"})
	c.must(err, "an unknown field that is ignored")

	c.must(unstructured.SetNestedField(found.Object, "other", "data", "key"), "changing")
	updated, err := client.Update(c.ctx, found, metav1.UpdateOptions{})
	c.must(err, "updating")
	_, err = client.Update(c.ctx, created, metav1.UpdateOptions{})
	c.refused(apierrors.IsConflict, err, "updating what has changed")
	patched, err := client.Patch(c.ctx, "first", types.MergePatchType, []byte(`{"data":{"key":null}}`), metav1.PatchOptions{})
	c.must(err, "patching")
	_, isThere := patched.Object["data"]
	c.expect(!isThere && patched.GetResourceVersion() != updated.GetResourceVersion(), "patched %v", patched)
	list, err := client.List(c.ctx, metav1.ListOptions{})
	c.must(err, "listing")
	kind := list.GetObjectKind().GroupVersionKind().String()
	c.expect(kind == "/v1, Kind=ConfigMapList" && list.GetResourceVersion() != "", "listed %s", kind)
	for _, item := range list.Items {
		c.expect(item.GetKind() == "ConfigMap" && item.GetAPIVersion() == "v1", "listed %v", item)
	}
	c.metadataOnly()
	c.must(client.Delete(c.ctx, "first", metav1.DeleteOptions{}), "deleting")
	_, err = client.Get(c.ctx, "first", metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "getting what is deleted")
}

// metadataOnly works with the client of the garbage collector, which sees nothing but metadata.
func (c *check) metadataOnly() {
	client := c.metadata.Resource(configMapsResource).Namespace(c.namespace)
	found, err := client.Get(c.ctx, "first", metav1.GetOptions{})
	c.must(err, "getting metadata")
	c.expect(found.Name == "first" && found.UID != "", "got %+v", found)
	list, err := client.List(c.ctx, metav1.ListOptions{})
	c.must(err, "listing metadata")
	c.expect(len(list.Items) >= 2 && list.ResourceVersion != "", "listed %+v", list)
	events, err := client.Watch(c.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	c.must(err, "watching metadata")
	defer events.Stop()
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	_, err = client.Patch(c.ctx, "first", types.MergePatchType, patch, metav1.PatchOptions{})
	c.must(err, "patching metadata")
	event := c.next(events, func(event watch.Event) bool { return true })
	seen, isMetadata := event.Object.(*metav1.PartialObjectMetadata)
	c.expect(isMetadata && event.Type == watch.Modified && seen.Labels["a"] == "b", "saw %+v", event)
}
