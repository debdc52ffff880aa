package kafka

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/slotline/slotline/config"
)

// GroupPrefix is what the consumer groups of a line begin with: one for each sink.
func GroupPrefix(line string) string { return "slotline." + line + "." }

// TransactionalIDPrefix is what the transactional ids of a line begin with: one for each lane.
func TransactionalIDPrefix(line string) string { return "slotline-" + line + "-lane-" }

// partUser stands for a user that is a variable which is not set here. A shell refuses it.
const partUser = "<user of the part>"

// operator stands for the user of whoever runs slotline archive trim.
const operator = "<operator>"

// account is the user of the file as an ACL names it, "" where the file names none. Where it is a variable, the parts of a
// line may be users of their own.
func account(cfg *config.Config) (user string, variable bool) {
	switch {
	case cfg.Kafka.SASL != nil:
		variable = strings.Contains(cfg.Kafka.SASL.User(), "${")
		user = cmp.Or(cfg.Kafka.SASL.UserName(), partUser)
	case cfg.Kafka.TLS != nil && cfg.Kafka.TLS.Cert != "":
		user = "CN=… (the subject of kafka.tls.cert)"
	}
	return user, variable
}

// aclCommand gives a user operations, which blanks separate, on a resource.
func aclCommand(cfg *config.Config, user, operations, resource string) string {
	principal := "User:" + user
	if user != partUser && user != operator {
		principal = "'" + principal + "'"
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --command-config ADMIN.properties --add --allow-principal %s --operation %s %s",
		cfg.Kafka.Brokers[0], principal, strings.ReplaceAll(operations, " ", " --operation "), resource)
}

// Grants are the commands that give the file's Kafka user what apply and all parts of the line need, and an operator the right
// to shorten the topics, for whoever runs the brokers; none where the file names no account.
func Grants(cfg *config.Config) []string {
	user, _ := account(cfg)
	if user == "" {
		return nil
	}
	acl := func(operations, resource string) string { return "-- " + aclCommand(cfg, user, operations, resource) }
	list := []string{"-- Kafka, where the brokers have an authorizer:"}
	if user == partUser {
		list = append(list, "-- the user of kafka.sasl is "+cfg.Kafka.SASL.User()+", which has no value here: write that of each part for "+partUser)
	}
	for _, t := range Topics(cfg) {
		list = append(list, acl("Read Write Create Alter AlterConfigs", "--topic "+t.Name))
	}
	list = append(list, acl("Read", groupResource(cfg)))
	if cfg.Outbox.Transactional {
		list = append(list, acl("Write Describe", "--resource-pattern-type prefixed --transactional-id "+TransactionalIDPrefix(cfg.Line)))
	}
	if cfg.Archive != nil {
		list = append(list, "-- and for a person who runs slotline archive trim; the line does without:")
		for _, topic := range cfg.Topics() {
			list = append(list, "-- "+aclCommand(cfg, operator, "Delete", "--topic "+topic))
		}
	}
	return list
}

func groupResource(cfg *config.Config) string {
	return "--resource-pattern-type prefixed --group " + GroupPrefix(cfg.Line)
}
