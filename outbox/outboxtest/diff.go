package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
)

// diff says how the events differ from those wanted, per tenant; "" when they do not.
func (o *Outbox) diff(got, want []event.Event) string {
	var b strings.Builder
	for _, tenant := range tenants(got, want) {
		g, w := of(tenant, got), of(tenant, want)
		var lines strings.Builder
		for i := range max(len(g), len(w)) {
			switch {
			case i >= len(g):
				fmt.Fprintf(&lines, "\n  %d. missing     %s", i+1, describe(&w[i]))
			case i >= len(w):
				fmt.Fprintf(&lines, "\n  %d. not wanted  %s", i+1, describe(&g[i]))
			default:
				if text := o.compare(&g[i], &w[i]); text != "" {
					fmt.Fprintf(&lines, "\n  %d. %s", i+1, text)
				}
			}
		}
		if lines.Len() == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		who := fmt.Sprintf("tenant %q", tenant)
		if tenant == "" {
			who = "broadcast tables"
		}
		fmt.Fprintf(&b, "%s: %d events were committed, %d wanted%s", who, len(g), len(w), lines.String())
	}
	return b.String()
}

// of are the events of one tenant, in their order.
func of(tenant string, events []event.Event) (list []event.Event) {
	for i := range events {
		if events[i].Tenant == tenant {
			list = append(list, events[i])
		}
	}
	return list
}

func describe(e *event.Event) string {
	version := ""
	if e.Version != 0 {
		version = fmt.Sprintf(" version %d", e.Version)
	}
	return fmt.Sprintf("%v %s/%s/%s%s %s", e.Op, e.Table, e.Tenant, e.EntityID, version, e.Body)
}

// compare says how one event differs; "" when it does not.
func (o *Outbox) compare(got, want *event.Event) string {
	if got.Table != want.Table || got.EntityID != want.EntityID || got.Op != want.Op {
		return fmt.Sprintf("is          %s\n     wanted      %s", describe(got), describe(want))
	}
	var lines []string
	differ := func(what, got, want any) {
		if got != want {
			lines = append(lines, fmt.Sprintf("\n     %v is %v, wanted %v", what, got, want))
		}
	}
	differ("version", version(got.Version), version(want.Version))
	differ("month", got.Month, want.Month)
	differ("spread", fmt.Sprintf("%q", got.Spread), fmt.Sprintf("%q", want.Spread))
	if !bytes.Equal(got.Body, want.Body) {
		g, w := fields(got.Body), fields(want.Body)
		if t := o.cfg.Table(got.Table); t != nil {
			for _, c := range t.Columns {
				differ("column "+c.Name, field(g, c.Name), field(w, c.Name))
				delete(g, c.Name)
				delete(w, c.Name)
			}
		}
		if len(lines) == 0 || len(g)+len(w) > 0 { // written by hand: not as Emit writes it
			differ("the body", string(got.Body), string(want.Body))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return fmt.Sprintf("%v %s/%s/%s%s", got.Op, got.Table, got.Tenant, got.EntityID, strings.Join(lines, ""))
}

func version(v int64) string {
	if v == 0 {
		return "automatic"
	}
	return fmt.Sprint(v)
}

func field(fields map[string]string, name string) string {
	if text, ok := fields[name]; ok {
		return text
	}
	return "not there"
}

// fields are the columns of a row image, each as its JSON text.
func fields(body []byte) map[string]string {
	var raw map[string]json.RawMessage
	if json.Unmarshal(body, &raw) != nil {
		return nil
	}
	texts := make(map[string]string, len(raw))
	for name, text := range raw {
		texts[name] = string(text)
	}
	return texts
}
