/*
 * trace.pml: a trace of real processes, for a model that is compiled with TRACE. $TRACE names its file: a line for each
 * step, with the numbers of step, process and value (trace.py writes it). NEXT() holds when it is the turn of a step, so
 * that the model can do nothing else; a step that the model does not allow in its state ends the replay. $REACHED gets
 * the number of the last step that was possible.
 */
#define WORKERS 8
#define SPREAD 0
#define TAKES 1
#define FOLLOWS 2
#define BEGINS 3
#define CLAIMS 4
#define ENDS 5
#define RESIGNS 6
#define EXITS 7
#define SHARD_IS 8
#define DIES 9
#define LOCKS 10 /* from here on steps of a user, which have an order of their own */
#define COMMITS 11

int at, at_user; /* how many steps are done */
bool refused;

c_code {
  static struct traced_step { unsigned char step, who, value; } *trace, *users;
  static int n_steps, n_users, furthest = -1; /* the last step that was possible */

  static struct traced_step *add(struct traced_step **list, int *n) {
    *list = realloc(*list, (*n + 1) * sizeof(**list));
    return &(*list)[(*n)++];
  }

  static void tell(void) {
    FILE *to = fopen(getenv("REACHED"), "w");
    fprintf(to, "%d of %d\n", furthest, n_steps);
    fclose(to);
  }

  __attribute__((constructor)) static void read_trace(void) {
    FILE *from = fopen(getenv("TRACE"), "r");
    int step, who, value;

    while (fscanf(from, "%d %d %d", &step, &who, &value) == 3) {
      *(step >= LOCKS ? add(&users, &n_users) : add(&trace, &n_steps)) = (struct traced_step){step, who, value};
    }
    fclose(from);
    atexit(tell);
  }
};

#define NEXT(what) (!refused && c_expr { now.at < n_steps && trace[now.at].step == what })
#define WHO c_expr { trace[now.at].who }
#define REPLAYED (!refused && c_expr { now.at == n_steps && now.at_user == n_users })
/* The step is done by `me`, and its line says `value`; both are variables of the process. */
#define READ(process) c_code { P##process->me = trace[now.at].who; P##process->value = trace[now.at].value; furthest = now.at > furthest ? now.at : furthest; now.at++; }
#define NEXT_OF_USER(what) (!refused && c_expr { now.at_user < n_users && users[now.at_user].step == what })
#define WHOM c_expr { users[now.at_user].who }
#define WITH_FORCE c_expr { users[now.at_user].value }
#define READ_USER(process) c_code { P##process->me = users[now.at_user].who; P##process->value = users[now.at_user].value; now.at_user++; }
