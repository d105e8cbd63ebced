! Rank r enters "only r" r + 1 times, and "all" 3 times with "inner" inside. Arguments: the prefix, "f08" or "mpi" is the build's.
program ranks
#ifdef WITH_F08
   use mpi_f08
#else
   use mpi
#endif
   use scope_profiler
   use scope_profiler_mpi
   implicit none
   integer :: rank, all_ranks, inner, only, i, ierror, status, world
   character(len=400) :: prefix, message
   character(len=20) :: name

   call get_command_argument(1, prefix)
   call MPI_Init(ierror)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
#ifdef WITH_F08
   world = MPI_COMM_WORLD%MPI_VAL
#else
   world = MPI_COMM_WORLD
#endif
   call sp_mpi_init(prefix, world, stat=status, errmsg=message)
   if (status /= SP_OK .or. len_trim(message) /= 0) stop 3
   write (name, "(a, i0)") "only ", rank
   all_ranks = sp_region("all", "ranks.f90", 12)
   inner = sp_region("inner")
   only = sp_region(trim(name))
   do i = 1, 3
      call sp_begin(all_ranks)
      call sp_begin(inner)
      call sp_end(inner)
      call sp_end(all_ranks)
   end do
   do i = 1, rank + 1
      call sp_begin(only)
      call sp_end(only)
   end do
   call MPI_Barrier(MPI_COMM_WORLD, ierror)
   call sp_mpi_finalize(stat=status, errmsg=message)
   if (status /= SP_OK) print "(a)", trim(message)
   if (sp_num_calls(all_ranks) /= 3) stop 4
   call MPI_Finalize(ierror)
   if (status /= SP_OK) stop 5
end program ranks
