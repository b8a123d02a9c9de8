from tests.sim.world import run
import time, sys, traceback, collections
n=int(sys.argv[1]) if len(sys.argv)>1 else 100
t=time.process_time(); fails=collections.Counter(); first={}; virt=0; reached=collections.Counter()
for s in range(n):
    try:
        w=run(s); virt+=w.t; reached.update(w.oracle.reached)
    except Exception as e:
        k=str(e)[:60] ; k=getattr(e,'rule',type(e).__name__); fails[k]+=1; first.setdefault(k,(s,str(e)[:300], traceback.format_exc() if k=='code' else ''))
d=time.process_time()-t
print(n/d,"seeds/s", virt/n, fails); 
for k,v in first.items(): print(k,*v)
print(reached)
