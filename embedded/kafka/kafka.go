// Package kafka is a Kafka broker inside the process, for the demo and for tests: franz-go's kfake behind a real socket
// on loopback.
//
// It promises Kafka's protocol as far as slotline speaks it: idempotent producers, transactions, consumer groups.
//
// What it is not: durable, replicated, or secured. All records are kept in memory until Close.
package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Broker is a running broker.
type Broker struct{ cluster *kfake.Cluster }

// Start starts a broker without topics on a free port of loopback. Topics are made when a client asks for it, as
// `slotline apply` does, never by being named.
func Start() (*Broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return nil, fmt.Errorf("embedded kafka: %w", err)
	}
	return &Broker{cluster}, nil
}

// Addr is HOST:PORT.
func (b *Broker) Addr() string { return b.cluster.ListenAddrs()[0] }

// Close ends the broker and closes every connection.
func (b *Broker) Close() { b.cluster.Close() }
