package main

import (
	"fmt"

	"github.com/slotline/slotline/integration/harness"
)

// hotPart divides a round's rows: the rest of the hot entity's rows, spread over the partitions, must fill transactions.
const hotPart = 2 * partitions * 4000

// mysqlHotEntity sets a log in which every second event is of one entity beside one in which all rows are equally likely.
// Both sides are ours.
func mysqlHotEntity(b *bench) []Result {
	m := b.newMySQLBench(mysqlText)
	n := max(1, b.rows(mysqlRows)/hotPart) * hotPart
	all := m.newRows(2 * n)
	m.rows = all
	m.publish()
	m.consume(m.sink, len(all))
	hot := all[0]
	side := func(hotRows int) func(int) float64 {
		return func(int) float64 {
			m.rows = m.rows[:0:0]
			counts := make([]int, partitions)
			for _, i := range m.random.Perm(len(all)) {
				p := m.layout.Route(all[i].Carrier, "").Partition
				if counts[p] == (n-hotRows)/partitions {
					continue
				}
				counts[p]++
				m.rows = append(m.rows, all[i])
			}
			for range hotRows {
				m.rows = append(m.rows, hot)
			}
			m.random.Shuffle(len(m.rows), func(i, j int) { m.rows[i], m.rows[j] = m.rows[j], m.rows[i] })
			for i := range m.rows { // a version of its own for each: an entity's rise
				m.version++
				m.rows[i] = newFlight(m.random, m.rows[i].Carrier, m.rows[i].FlightID, m.version)
			}
			m.publish()
			return m.consume(m.sink, n)
		}
	}
	rounds := b.alternate(mysqlRounds, nil, side(n/2), side(0))
	return []Result{summarize("mysql_hot_entity", "rows/s", rounds,
		fmt.Sprintf("updates, %d a round, half of them of one entity; bare is this sink too, with rows at random of %d", n, len(all)))}
}

// mysqlTwoShards sets two shards, on a server each, beside one. Both sides are ours, with as many rows a partition.
func mysqlTwoShards(b *bench) []Result {
	second := harness.PrivateMySQL(b)
	second.MakeDurable(b)
	one, two := b.newMySQLBench(mysqlText), b.newMySQLBenchOn(mysqlText, second)
	side := func(m *mysqlBench) func(int) float64 {
		return func(int) float64 {
			m.rows = m.newRows(m.rowsOfARound())
			m.publish()
			return m.ours(0)
		}
	}
	rounds := b.alternate(mysqlRounds, nil, side(two), side(one))
	return []Result{summarize("mysql_two_shards", "rows/s", rounds,
		fmt.Sprintf("new rows, %d a round from %d partitions, half to each shard; bare is this sink too, with one shard. %s",
			one.rowsOfARound(), partitions, cpuPerRow(rounds, one.rowsOfARound())))}
}
