package main

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// coreEvents has a recorder tell of something three times, which makes one event that is patched twice.
func (c *check) coreEvents() {
	client := c.typed.CoreV1().Events(c.namespace)
	about, err := c.typed.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, newConfigMap("about", nil), metav1.CreateOptions{})
	c.must(err, "creating")
	broadcaster := record.NewBroadcaster(record.WithContext(c.ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.typed.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "checks", Host: "here"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeNormal, "Repeated", "the same again")
	}
	recorder.AnnotatedEventf(about, map[string]string{"a": "b"}, corev1.EventTypeWarning, "Once", "number %d", 7)
	found := func(selector string) []corev1.Event {
		list, err := client.List(c.ctx, metav1.ListOptions{FieldSelector: selector})
		c.must(err, "listing events by %s", selector)
		return list.Items
	}
	c.eventually("one event that counts to 3", func() bool {
		list := found("reason=Repeated")
		return len(list) == 1 && list[0].Count == 3
	})
	repeated := found("reason=Repeated,type=Normal,involvedObject.name=about,source=checks")
	c.expect(len(repeated) == 1 && repeated[0].Source.Host == "here" && repeated[0].Message == "the same again" &&
		!repeated[0].FirstTimestamp.IsZero() && repeated[0].InvolvedObject.UID == about.UID, "told: %+v", repeated)
	c.eventually("the other event", func() bool { return len(found("type=Warning")) == 1 })
	c.expect(found("type=Warning")[0].Annotations["a"] == "b", "told: %+v", found("type=Warning"))
	all, err := client.SearchWithContext(c.ctx, scheme.Scheme, about)
	c.must(err, "all events of an object")
	c.expect(len(all.Items) == 2, "%d events of an object", len(all.Items))
	c.expect(len(found("involvedObject.kind=Pod")) == 0, "events of other kinds")
	elsewhere := repeated[0].DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Name: "elsewhere"}
	elsewhere.InvolvedObject.Namespace = "default"
	_, err = client.Create(c.ctx, elsewhere, metav1.CreateOptions{})
	c.refused(apierrors.IsInvalid, err, "an event of another namespace")
}

// newerEvents has the recorder of events.k8s.io tell of something; where that isn't served, it goes back to the core's.
func (c *check) newerEvents() {
	about, err := c.typed.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, newConfigMap("about", nil), metav1.CreateOptions{})
	c.must(err, "creating")
	broadcaster := events.NewEventBroadcasterAdapterWithContext(c.ctx, c.typed)
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(c.ctx.Done())
	recorder := broadcaster.NewRecorder("checks")
	for range 3 {
		recorder.Eventf(about, nil, corev1.EventTypeNormal, "Repeated", "Telling", "the same again")
	}
	_, err = c.typed.Discovery().ServerResourcesForGroupVersion(eventsv1.SchemeGroupVersion.String())
	isServed := err == nil
	c.details["served"] = isServed
	c.eventually("an event", func() bool {
		list, err := c.typed.CoreV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=Repeated"})
		c.must(err, "listing events")
		if len(list.Items) != 1 {
			return false
		}
		event := list.Items[0]
		if isServed {
			return event.ReportingController == "checks" && event.Series != nil && event.Action == "Telling"
		}
		return event.Source.Component == "checks" && event.Count == 3
	})
}
