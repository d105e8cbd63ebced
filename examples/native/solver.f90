! A Fortran program with regions, also in the threads of OpenMP; `scope-profiler inspect` shows solver_f_rank00000.h5.
program solver
   use scope_profiler
   implicit none
   integer :: assemble, i, solve, step
   double precision :: total

   call sp_init("solver_f")
   call sp_set_output_format(SP_OUTPUT_HDF5) ! with the lanes of the threads; a .spt file without this line
   assemble = sp_region("assemble", "solver.f90", 12)
   solve = sp_region("solve")
   total = 0
   do step = 1, 3
      call sp_begin(assemble)
      !$omp parallel do reduction(+:total) schedule(static, 1) num_threads(2)
      do i = 1, 2
         call sp_begin(solve)
         total = total + part(i)
         call sp_end(solve)
      end do
      !$omp end parallel do
      call sp_end(assemble)
   end do
   call sp_finalize()
   print "(a, i0)", "solve: ", sp_num_calls(solve)
   if (total < 0) error stop

contains

   function part(seed) result(total)
      integer, intent(in) :: seed
      double precision :: total
      integer :: k

      total = 0
      do k = 1, 10000
         total = total + sqrt(dble(k + seed))
      end do
   end function part

end program solver
